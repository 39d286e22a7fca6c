"""36 architectures: speed, error and integers of onnxq, beside onnxruntime.quantization.

    python -m benchmarks architectures                  # all of them, some 20 minutes
    python -m benchmarks architectures vit efficientnet
    python -m benchmarks architectures --results FOLDER --against PAGE

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
With --results, figures go into FOLDER/NAME.json, and those that are there are not measured again.
With --against, the tables of that page are compared: what is slower than float, what lost more than
0.3 dB, and where a file of the peer has more dB at no less speed; the exit code is 1 if any is.
The tables that this printed are in benchmarks/results/architectures.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.checking.cross_findings import Unchecked
from onnxq.errors import OnnxqError
from onnxq.graph.io import load, save
from onnxq.ort.runtime import NodeKind, count, integer_nodes, optimized_graph
from onnxq.pytorch import convert, disable_observer, prepare_qat
from onnxq.qconfig import Choice, default_qconfig_mapping
from scripts._architectures import ARCHITECTURES, Size, build
from scripts._architectures._parts import batches
from scripts._peer import Batch, dynamic_peer, static_peer
from scripts._tables import cells, head, line, sqnr_db
from scripts._timing import NOT_SLOWER, Ratio, ratio_of, runs_on, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt


ROUNDS = 31
SAMPLES = 16
CALIBRATION_SEED, TEST_SEED, SPEED_SEED = 7, 11, 5
ALONE = {"cond_if"}  # its condition is a mean over the batch: one sample at a time
STATIC = ("x86-vnni", "portable", "quantize_static")
DYNAMIC = ("speed", "size", "quantize_dynamic")
OURS, PEERS = ("x86-vnni", "speed"), ("quantize_static", "quantize_dynamic")
"""Files that are compared: static and dynamic by default, and the peer's."""
LOST_DB, DOUBT_DB = 0.3, 0.1


@dataclass(slots=True)
class Row:
    """Figures of an architecture; keys are the names in STATIC and DYNAMIC."""

    name: str
    ratio: dict[str, Ratio] = field(default_factory=dict)
    sqnr_db: dict[str, list[float]] = field(default_factory=dict)
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: dict[str, float] = field(default_factory=dict)
    differing: int = 0
    qat: str = ""

    def to_json(self) -> str:
        """Text that `from_json` reads back."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Row:
        """The row of `to_json`."""
        data = json.loads(text)
        data["ratio"] = {name: Ratio(**each) for name, each in data["ratio"].items()}
        data["nodes"] = {name: (each[0], each[1]) for name, each in data["nodes"].items()}
        return Row(**data)


def outputs(path: Path, data: list[Batch]) -> list[npt.NDArray[np.float64]]:
    model = session(path)
    runs = [model.run(None, batch) for batch in data]
    return [np.concatenate(parts).astype(np.float64) for parts in zip(*runs, strict=True)]


def at_speed(row: Row, folder: Path) -> None:
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


def agreement(row: Row, folder: Path) -> None:
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
        torch.stack([part.float().square().mean() for part in parts]).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.apply(disable_observer)
    onnxq.export(convert(model.eval()), feeds(8, CALIBRATION_SEED), path)


def figures(name: str, results: Path | None) -> Row:
    """The architecture's row, from the folder if it is there."""
    kept = None if results is None else results / f"{name}.json"
    if kept is not None and kept.is_file():
        return Row.from_json(kept.read_text(encoding="utf-8"))
    row = Row(name)
    # the peer leaves a file in the working directory
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        agreement(row, Path(folder))
        at_speed(row, Path(folder))
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(row.to_json(), encoding="utf-8")
    return row


def behind_float_and_peer(row: Row) -> Iterator[str]:
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


def behind_page(row: Row, page: str) -> Iterator[str]:
    """Files whose SQNR is below that of the page's tables by more than LOST_DB."""
    for cell in cells(page, "architecture"):
        for name in OURS:
            before = cell.get(f"dB: {name}")
            if cell["architecture"] != row.name or before is None:
                continue
            now = _db(row.sqnr_db[name])
            for a, b in zip(before.split(" / "), now.split(" / "), strict=True):
                if b != "float" and (a == "float" or float(a) - float(b) > LOST_DB):
                    yield f"{row.name}, {name}: {now} dB; {before} dB before"
                    break


def tables(rows: list[Row]) -> str:
    """Markdown: static, then dynamic."""
    names = [
        *(f"x float: {name}" for name in STATIC),
        *(f"dB: {name}" for name in STATIC),
        *(f"nodes: {name}" for name in STATIC),
        "differing",
        "QAT",
    ]
    lines = ["## Static", "", head("architecture", *names)]
    lines += [
        line(
            row.name,
            *(_speed(row.ratio.get(name)) for name in STATIC),
            *(_db(row.sqnr_db.get(name)) for name in STATIC),
            *(_nodes(row.nodes.get(name)) for name in STATIC),
            row.differing,
            row.qat,
        )
        for row in rows
    ]
    names = [f"{what}: {name}" for what in ("x float", "dB", "x size") for name in DYNAMIC]
    lines += ["", "## Dynamic", "", head("architecture", *names)]
    lines += [
        line(
            row.name,
            *(_speed(row.ratio.get(name)) for name in DYNAMIC),
            *(_db(row.sqnr_db.get(name)) for name in DYNAMIC),
            *(_size(row.size.get(name)) for name in DYNAMIC),
        )
        for row in rows
    ]
    return "\n".join(lines)


def _speed(ratio: Ratio | None) -> str:
    return "fails" if ratio is None else f"{1 / ratio.median:.2f}"


def _size(x: float | None) -> str:
    return "fails" if x is None else f"{x:.2f}"


def _db(values: list[float] | None) -> str:
    if values is None:
        return "fails"
    return " / ".join("float" if np.isinf(x) else f"{x:.1f}" for x in values[:2])


def _nodes(found: tuple[int, int] | None) -> str:
    return "fails" if found is None else f"{found[0]} / {found[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ARCHITECTURES))
    parser.add_argument("--results", type=Path, help="folder of what is measured, and was")
    parser.add_argument("--against", type=Path, help="page with the tables of an earlier run")
    args = parser.parse_args()
    names = args.names or list(ARCHITECTURES)
    if unknown := set(names) - set(ARCHITECTURES):
        parser.error(f"no such architecture: {', '.join(sorted(unknown))}")
    logging.disable(logging.WARNING)  # of torch's exporter and of the peer
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = None if args.results is None else args.results.resolve()
    rows = []
    for name in names:
        rows.append(figures(name, results))
        print(f"{name}: measured", file=sys.stderr, flush=True)
    print(tables(rows))
    if args.against is None:
        return 0
    page = args.against.read_text(encoding="utf-8")
    falls = [fall for row in rows for fall in behind_float_and_peer(row)]
    falls += [fall for row in rows for fall in behind_page(row, page)]
    falls = list(dict.fromkeys(falls))  # a page may have two tables with the same row
    print("\n".join(["", *(f"- {fall}" for fall in falls)]))
    return 1 if falls else 0


if __name__ == "__main__":
    sys.exit(main())
