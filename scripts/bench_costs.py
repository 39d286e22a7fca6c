"""Whole networks: their time as the table of costs predicts it, beside the clock.

    python scripts/bench_costs.py                       # fifteen architectures, some ten minutes
    python scripts/bench_costs.py vit efficientnet
    python scripts/bench_costs.py --costs here.csv --output table.md

Each architecture (scripts/_architectures, realistic widths, batch 1) is quantized for x86-vnni in
two ways: every node in integers (--all-integers), and as the rules and the data choose, ahead of
any look at a table. "predicted" is the ratio of the predicted times, quantized over float;
"measured" the median over pairs of runs, in turns, one thread, CPU time. "with costs" is the
measured ratio of what `quantize` writes, which the table has a say in: nodes that do not pay are
left in float. Sums ahead of a LayerNormalization are written apart in the float model too, as they
are in every quantized one; ONNX Runtime would fuse them to a slower node.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.costs import Costs, of
from onnxq.costs.model_time import predict_time
from onnxq.graph.io import load, save
from onnxq.qconfig import Choice, default_qconfig_mapping
from scripts._architectures import ARCHITECTURES, Size, build
from scripts._tables import head, line, publish, versions
from scripts._timing import runs_on, session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from onnxq.operator import Precision
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics
    from scripts._architectures._parts import Feeds

TARGET = "x86-vnni"
ROUNDS = 30
SAMPLES = 4
NAMES = (
    *("vit", "mixer", "bert", "gpt_causal", "swin", "convnext", "efficientnet", "mobilenetv3"),
    *("regnet_x", "shufflenetv2", "googlenet", "densenet", "unet", "tcn", "crnn", "deeplab"),
)
EMPTY = Costs(TARGET, "", "", "", "1", "", "", ())
"""A table without a row, which decides nothing."""


@dataclass(frozen=True, slots=True)
class Row:
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


def row(name: str, table: Costs, folder: Path) -> Row:
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
    return Row(
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
    forms: dict[str, Precision] = {name: choice.precision for name, choice in made.choices.items()}
    found = predict_time(prepared.model, forms, statistics.samples.shapes, table)
    types = {node.name: node.op_type for node in prepared.model.graph}
    return found.ns, {types[name] for name in found.unknown}


def lines(rows: list[Row], table: Costs) -> Iterator[str]:
    """The page, without what is written by hand."""
    yield f"Table: {table.machine}, {table.date}, {table.throughput}. {versions('onnxruntime')}."
    yield ""
    ways = ("integers", "rules")
    names = [f"{way}: {what}" for way in ways for what in ("predicted", "measured", "off")]
    yield head("architecture", *names, "with costs: measured", "without a time")
    for each in rows:
        cells: list[str] = []
        for way in ways:
            ratio, clock = each.predicted[way], each.measured[way]
            cells += [f"{ratio:.2f}", f"{clock:.2f}", f"{ratio / clock - 1:+.0%}"]
        last = f"{each.measured['with costs']:.2f}"
        yield line(each.name, *cells, last, ", ".join(each.missing))
    for way in ways:
        off = [abs(np.log(each.predicted[way] / each.measured[way])) for each in rows]
        yield ""
        yield f"{way}: median error {np.median(off):.0%}, largest {max(off):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ARCHITECTURES))
    parser.add_argument("--costs", type=Path, help="table; default: that of the target")
    parser.add_argument("--output", type=Path, help="file to write the table to, too")
    asked = parser.parse_args()
    table = Costs.load(asked.costs) if asked.costs else of(TARGET)
    assert table is not None
    logging.disable(logging.WARNING)  # of torch's exporter
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name in asked.names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(name, table, Path(folder)))
        print(f"{name}: {rows[-1]}", file=sys.stderr, flush=True)
    publish(lines(rows, table), asked.output)


if __name__ == "__main__":
    main()
