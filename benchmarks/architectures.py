"""36 architectures: speed, error and integers of onnxq, beside onnxruntime.quantization.

    python -m benchmarks architectures                  # all of them, some 20 minutes
    python -m benchmarks architectures vit efficientnet
    python -m benchmarks architectures --against benchmarks/results/architectures.json

Each architecture (scripts/_architectures, random weights) is exported and quantized by both tools.
Speed: at realistic widths, batch 1, one thread, CPU time; each variant takes turns with float, and
a ratio is the median of 31 pairs. Above 1, the variant is faster than float. SQNR: of each output
(the first two) against float's, over 16 samples that nothing was calibrated on. The weights being
random, it compares tools and is no accuracy. Nodes: integer / float ones of ONNX
Runtime's optimized graph. Differing: elements in which ONNX Runtime and the reference kernels
differ, at tiny widths, with all nodes in integers that can be, x86-vnni and portable, both formats.
QAT: trained two steps without stubs, converted, exported; ok if every integer agrees then; tiny
widths. Reasons go to stderr.

Calibration: 16 samples. The peer: quant_pre_process (where it does not fail), quantize_static
with QDQ, uint8 activations and int8 weights per channel, MinMax; quantize_dynamic per channel on
MatMul, Gemm, Gather and LSTM. It fails on shapes that torch's exporter declares for weights, which
are therefore taken away in front of it.
With --against, earlier results are compared: what is slower than float, what lost more than
0.3 dB, and where a file of the peer has more dB at no less speed; the exit code is 1 if any is.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import torch

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import FILE, with_names
from benchmarks.harness.results import Results
from benchmarks.harness.table import Missed, Row, Table, shown
from onnxq.checking.cross_findings import Unchecked
from onnxq.errors import OnnxqError
from onnxq.graph.io import load, save
from onnxq.ort.runtime import NodeKind, count, integer_nodes, optimized_graph
from onnxq.pytorch import convert, disable_observer, prepare_qat
from onnxq.qconfig import Choice, default_qconfig_mapping
from scripts._architectures import ARCHITECTURES, Size, build
from scripts._architectures._parts import batches
from scripts._peer import Batch, dynamic_peer, static_peer
from scripts._tables import sqnr_db
from scripts._timing import NOT_SLOWER, Ratio, ratio_of, runs_on, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt


ROUNDS = 31
SAMPLES = 16
CALIBRATION_SEED, TEST_SEED, SPEED_SEED = 7, 11, 5
ALONE = {"cond_if"}  # its condition is a mean over the batch: one sample at a time
STATIC = ("x86-vnni", "portable", "quantize_static")
DYNAMIC = ("speed", "size", "quantize_dynamic")
OURS, PEERS = ("x86-vnni", "speed"), ("quantize_static", "quantize_dynamic")
"""Files that are compared: static and dynamic by default, and the peer's."""
NOTHING, FAILS = "float", "fails"
"""In place of dB where nothing was quantized, and of a figure where the peer makes no file."""
STATIC_FILES = Table(
    "static",
    {
        "architecture": "",
        **{f"x float: {name}": ".2f" for name in STATIC},
        **{f"dB: {name}": ".1f" for name in STATIC},
        **{f"nodes: {name}": "" for name in STATIC},
        **{"differing": "", "QAT": ""},
    },
)
DYNAMIC_FILES = Table(
    "dynamic",
    {
        "architecture": "",
        **{f"x float: {name}": ".2f" for name in DYNAMIC},
        **{f"dB: {name}": ".1f" for name in DYNAMIC},
        **{f"x size: {name}": ".2f" for name in DYNAMIC},
    },
)
LOST_DB, DOUBT_DB = 0.3, 0.1


@dataclass(slots=True)
class Figures:
    """Figures of an architecture; keys are the names in STATIC and DYNAMIC."""

    name: str
    ratio: dict[str, Ratio] = field(default_factory=dict)
    sqnr_db: dict[str, list[float]] = field(default_factory=dict)
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: dict[str, float] = field(default_factory=dict)
    differing: int = 0
    qat: str = ""


def outputs(path: Path, data: list[Batch]) -> list[npt.NDArray[np.float64]]:
    model = session(path)
    runs = [model.run(None, batch) for batch in data]
    return [np.concatenate(parts).astype(np.float64) for parts in zip(*runs, strict=True)]


def at_speed(row: Figures, folder: Path) -> None:
    """Speed, SQNR, nodes and sizes at realistic widths."""
    module, feeds = build(row.name, Size.REAL)
    source = folder / "float.onnx"
    onnxq.export(module, feeds(4, SPEED_SEED), source)
    width = 1 if row.name in ALONE else 4
    calibration = batches(feeds(SAMPLES, CALIBRATION_SEED), width)
    singly = batches(feeds(SAMPLES, CALIBRATION_SEED), 1)
    test = batches(feeds(SAMPLES, TEST_SEED), width)

    def static(target: str) -> Callable[[Path], None]:
        return lambda path: save(onnxq.quantize(source, calibration, target=target), path)

    def dynamic(objective: str) -> Callable[[Path], None]:
        return lambda path: save(
            onnxq.quantize_dynamic(source, objective=objective, target="x86-vnni"), path
        )

    makers: dict[str, Callable[[Path], None]] = {name: static(name) for name in STATIC[:2]}
    makers["quantize_static"] = lambda path: static_peer(source, path, singly)
    makers |= {name: dynamic(name) for name in DYNAMIC[:2]}
    makers["quantize_dynamic"] = lambda path: dynamic_peer(source, path)
    paths = {"float": source}
    wanted = outputs(source, test)
    for name, make in makers.items():
        path = folder / f"{name}.onnx"
        try:
            make(path)
        except OnnxqError:
            raise
        except Exception as error:  # the peer raises all kinds
            print(f"{row.name}: {name} fails: {error}", file=sys.stderr)
            continue
        paths[name] = path
        got = outputs(path, test)
        row.sqnr_db[name] = [sqnr_db(*pair) for pair in zip(wanted, got, strict=True)]
        row.size[name] = path.stat().st_size / source.stat().st_size
        row.nodes[name] = nodes_of(path)
    sessions = {name: session(path) for name, path in paths.items()}
    one = batches(feeds(1, SPEED_SEED), 1)[0]
    runs = runs_on(sessions, one)
    floats = runs["float"]
    row.ratio = {
        name: ratio_of(run, floats, ROUNDS) for name, run in runs.items() if name != "float"
    }


def nodes_of(path: Path) -> tuple[int, int]:
    """(integer, float) nodes that ONNX Runtime runs."""
    uses = integer_nodes(optimized_graph(load(path)))
    return count(uses, NodeKind.INTEGER).total(), count(uses, NodeKind.FLOAT).total()


def agreement(row: Figures, folder: Path) -> None:
    """Every integer against its kernel, and the way through training, at tiny widths."""
    module, feeds = build(row.name, Size.TINY)
    source, path = folder / "tiny.onnx", folder / "tiny.int8.onnx"
    onnxq.export(module, feeds(4, SPEED_SEED), source)
    width = 1 if row.name in ALONE else 8
    calibration = batches(feeds(32, CALIBRATION_SEED), width)
    test = batches(feeds(2 * width, TEST_SEED), width)
    # a branch that no sample takes has nothing to compare
    unchecked = Unchecked.ALLOWED if row.name in ALONE else Unchecked.REFUSED
    # the default leaves tiny mobile networks in float
    integers = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    for target in STATIC[:2]:
        for form in ("qdq", "qoperator"):
            made = onnxq.quantize(source, calibration, qconfig=integers, target=target, format=form)
            save(made, path)
            found = onnxq.cross_check(path, test)
            found.check(unchecked=unchecked)
            row.differing += found.differing
    try:
        trained(row.name, path)
    except OnnxqError as error:
        print(f"{row.name}: QAT is refused: {error}", file=sys.stderr)
        row.qat = "refused"
        return
    found = onnxq.cross_check(path, test)
    row.qat = "ok" if not found.differing else f"{found.differing} differ"


def trained(name: str, path: Path) -> None:
    """Two steps of training with fake quantization, without stubs, then the file."""
    module, feeds = build(name, Size.TINY)
    model = prepare_qat(module, inputs=feeds(8, CALIBRATION_SEED))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for step in range(2):
        y = model(**feeds(8, CALIBRATION_SEED + step))
        parts = y if isinstance(y, tuple) else (y,)
        optimizer.zero_grad()
        torch.stack([part.float().square().mean() for part in parts]).sum().backward()  # type: ignore[no-untyped-call]  # torch's
        optimizer.step()
    model.apply(disable_observer)
    onnxq.export(convert(model.eval()), feeds(8, CALIBRATION_SEED), path)


def figures(name: str) -> Figures:
    """Everything that is measured of the architecture."""
    found = Figures(name)
    # the peer leaves a file in the working directory
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        agreement(found, Path(folder))
        at_speed(found, Path(folder))
    return found


def behind_float_and_peer(row: Figures) -> Iterator[str]:
    """Files that are slower than float, and files of the peer with more dB at no less speed."""
    for name in OURS:
        ratio, ours = row.ratio[name], row.sqnr_db[name]
        if ratio.is_slower:
            yield f"{row.name}, {name}: {ratio} of float's time"
        for peer in PEERS:
            if peer not in row.ratio or row.ratio[peer].median > ratio.median * NOT_SLOWER:
                continue
            theirs = row.sqnr_db[peer]
            if any(b - a > DOUBT_DB for a, b in zip(ours[:2], theirs[:2], strict=True)):
                yield (
                    f"{row.name}, {name}: {_db(ours)} dB at {ratio} of float's time; "
                    f"{peer} has {_db(theirs)} dB at {row.ratio[peer]}"
                )


def behind_results(row: Figures, before: Results) -> Iterator[str]:
    """Files whose SQNR is below that of earlier results by more than LOST_DB."""
    for table, name in zip(("static", "dynamic"), OURS, strict=True):
        if table not in before.tables or not before.tables[table].of(row.name):
            continue
        old = before.tables[table](f"dB: {name}", row.name)
        now = row.sqnr_db[name][:2]
        for a, b in zip(old if isinstance(old, list) else [old], now, strict=True):
            if np.isfinite(b) and (a == NOTHING or a - b > LOST_DB):
                yield f"{row.name}, {name}: {_db(now)} dB; {_db([a])} dB before"
                break


def cells(found: Mapping[str, list[Any]], names: Sequence[str]) -> list[Any]:
    """A cell for each of these files."""
    return [found.get(name, FAILS) for name in names]


def rows(found: Figures) -> Iterator[Row]:
    """A row of each table."""
    speeds: dict[str, Any] = {name: 1 / ratio.median for name, ratio in found.ratio.items()}
    db: dict[str, Any] = {
        name: [NOTHING if np.isinf(x) else x for x in each[:2]]
        for name, each in found.sqnr_db.items()
    }
    nodes: dict[str, Any] = {name: list(each) for name, each in found.nodes.items()}
    sizes: dict[str, Any] = dict(found.size)
    static = [cell for each in (speeds, db, nodes) for cell in cells(each, STATIC)]
    yield STATIC_FILES.row(found.name, *static, found.differing, found.qat)
    dynamic = [cell for each in (speeds, db, sizes) for cell in cells(each, DYNAMIC)]
    yield DYNAMIC_FILES.row(found.name, *dynamic)


def _db(values: Sequence[float | str]) -> str:
    return shown([NOTHING if x == np.inf else x for x in values], ".1f")


@benchmark(STATIC_FILES, DYNAMIC_FILES, needs=("torch",))
@click.option("--against", type=FILE, help="results of an earlier run")
@with_names(ARCHITECTURES)
def measure(against: Path | None, names: Sequence[str]) -> Iterator[Row | Missed]:
    """The rows of each architecture, and where it falls behind."""
    before = None if against is None else Results.load(against)
    for name in names or ARCHITECTURES:
        found = figures(name)
        yield from rows(found)
        if before is not None:
            yield from map(Missed, behind_float_and_peer(found))
            yield from map(Missed, behind_results(found, before))
