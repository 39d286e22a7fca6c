"""Whole networks: their time as the table of costs predicts it, beside the clock.

    python -m benchmarks costs                       # fifteen architectures, some ten minutes
    python -m benchmarks costs vit efficientnet
    python -m benchmarks costs --costs here.csv

Each architecture (scripts/_architectures, realistic widths, batch 1) is quantized for x86-vnni in
two ways: every node in integers (--all-integers), and as the rules and the data choose, ahead of
any look at a table. "predicted" is the ratio of the predicted times, quantized over float;
"measured" the median over pairs of runs, in turns, one thread, CPU time. "with costs" is the
measured ratio of what `quantize` writes, which the table has a say in: nodes that do not pay are
left in float. Sums ahead of a LayerNormalization are written apart in the float model too, as they
are in every quantized one; ONNX Runtime would fuse them to a slower node.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import FILE, with_names
from benchmarks.harness.table import Row, Table
from onnxq.graph.io import load, save
from onnxq.graph.sizes import sizes_of
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.times import Costs, costs_of
from onnxq.times.time_model import predicted, walked
from scripts._architectures import ARCHITECTURES, Size, build
from scripts._timing import runs_on, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from onnxq.operator import Precision
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics
    from scripts._architectures._parts import Feeds

TARGET = "x86-vnni"
WAYS = ("integers", "rules")
RATIOS = Table(
    "ratios",
    {
        "architecture": "",
        **{
            f"{way}: {what}": "+.0%" if what == "off" else ".2f"
            for way in WAYS
            for what in ("predicted", "measured", "off")
        },
        **{"with costs: measured": ".2f", "without a time": ""},
    },
)
ERRORS = Table("errors", {"way": "", "median error": ".0%", "largest": ".0%"})
ROUNDS = 30
SAMPLES = 4
NAMES = (
    *("vit", "mixer", "bert", "gpt_causal", "swin", "convnext", "efficientnet", "mobilenetv3"),
    *("regnet_x", "shufflenetv2", "googlenet", "densenet", "unet", "tcn", "crnn", "deeplab"),
)
EMPTY = Costs(TARGET, "", "", "", "1", "", "", ())
"""A table without a row, which decides nothing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Ratios of one architecture, to float.

    Attributes:
        name: of the architecture.
        predicted: way -> predicted ratio.
        measured: way -> measured one.
        missing: operators whose time is not known.
    """

    name: str
    predicted: dict[str, float]
    measured: dict[str, float]
    missing: tuple[str, ...]


def measured(name: str, table: Costs, folder: Path) -> Measured:
    """Predicts and measures one architecture."""
    module, feeds = build(name, Size.REAL)
    source = folder / "float.onnx"
    onnxq.export(module, feeds(4, 5), source)
    data = arrays(feeds(SAMPLES, 7))
    batches = [{key: x[i : i + 1] for key, x in data.items()} for i in range(SAMPLES)]
    every = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    none = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS).set_global(None)
    ways = {"float": (none, EMPTY), "integers": (every, EMPTY), "rules": (None, EMPTY)}
    ways["with costs"] = (None, table)
    predicted, sessions, missing = {}, {}, set[str]()
    for way, (mapping, costs) in ways.items():
        prepared = onnxq.prepare(load(source), mapping, TARGET, costs=costs)
        statistics = onnxq.calibrate(prepared, batches, threads=1)
        made = onnxq.plan(prepared, statistics)
        save(onnxq.rewrite(prepared, made), folder / f"{way}.made.onnx")
        sessions[way] = session(folder / f"{way}.made.onnx")
        ns, unknown = prediction(prepared, made, statistics, table)
        predicted[way], missing = ns, missing | unknown
    times = taking_turns(runs_on(sessions, arrays(feeds(1, 5))), ROUNDS)
    return Measured(
        name,
        {way: ns / predicted["float"] for way, ns in predicted.items()},
        {way: float(np.median(each / times["float"])) for way, each in times.items()},
        tuple(sorted(missing)),
    )


def arrays(feeds: Feeds) -> dict[str, npt.NDArray[np.generic]]:
    """Inputs as arrays."""
    return {name: x.numpy() for name, x in feeds.items()}


def prediction(
    prepared: Prepared, made: Plan, statistics: Statistics, table: Costs
) -> tuple[float, set[str]]:
    """(predicted nanoseconds, operators whose time is not known)."""
    forms: dict[str, Precision] = {
        name: choice.precision for name, choice in made.precisions.items()
    }
    found = predicted(
        prepared.model,
        walked(prepared.model, forms, sizes_of(prepared.model, statistics.samples.shapes), table),
        table,
    )
    types = {node.name: node.op_type for node in prepared.model.graph}
    return found.ns, {types[name] for name in found.unknown}


def errors(way: str, rows: Sequence[Measured]) -> Row:
    """How far predictions of a way are off."""
    off = [abs(np.log(each.predicted[way] / each.measured[way])) for each in rows]
    return ERRORS.row(way, np.median(off), max(off))


@benchmark(RATIOS, ERRORS, needs=("torch",))
@click.option("--costs", type=FILE, help="table; default: that of the target")
@with_names(ARCHITECTURES)
def measure(costs: Path | None, names: Sequence[str]) -> Iterator[Row]:
    """Predicted and measured ratios of each architecture, then their errors."""
    table = Costs.load(costs) if costs else costs_of(TARGET)
    assert table is not None
    found = []
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            each = measured(name, table, Path(folder))
        found.append(each)
        cells = [
            cell
            for way in WAYS
            for predicted, clock in [(each.predicted[way], each.measured[way])]
            for cell in (predicted, clock, predicted / clock - 1)
        ]
        missing = ", ".join(each.missing)
        yield RATIOS.row(name, *cells, each.measured["with costs"], missing)
    for way in WAYS:
        yield errors(way, found)
