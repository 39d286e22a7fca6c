"""Static quantization beside onnxruntime.quantization: accuracy, SQNR, speed, integer nodes.

    python -m benchmarks ptq                                  # the 1,000 embedded test images
    python -m benchmarks ptq --data cifar10_jpeg.npz          # all 10,000

Calibration: the 256 embedded training images, for every tool. Accuracy is paired: the same images
in the same order. Speed: one thread, CPU time, the sessions take turns; medians. SQNR: of the
logits against the float model's. Integer nodes: in ONNX Runtime's optimized graph, not the file.
The table that this printed is in benchmarks/results/ptq.md.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from onnxruntime.quantization import CalibrationMethod

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.graph.io import load, save
from onnxq.ort import runtime
from scripts._models import FloatModel, chosen_models
from scripts._peer import Batch, quantize_static
from scripts._tables import head, line, sqnr_db
from scripts._timing import median_seconds, runs_on, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.core.arrays import Singles

BATCH = 100
ROUNDS = 41


@dataclass(frozen=True, slots=True)
class Result:
    """One quantized model, measured."""

    name: str
    top1: float
    correct: npt.NDArray[np.bool_]
    sqnr_db: float
    integer_nodes: int
    float_nodes: int
    size_bytes: int
    seconds: float


def quantized_by_onnxruntime(
    model: Path, images: Singles, folder: Path
) -> Iterator[tuple[str, Path]]:
    """(name, file) of quantize_static's variants: QDQ, uint8 activations, int8 weights."""
    for granularity in ("per-channel", "per-tensor"):
        for method in (CalibrationMethod.MinMax, CalibrationMethod.Percentile):
            path = folder / f"ort-{granularity}-{method.name}.onnx"
            singly: list[Batch] = [{"image": x[None]} for x in images]
            quantize_static(model, path, singly, method, granularity)
            yield f"quantize_static {granularity} {method.name}", path


def quantized_by_onnxq(model: Path, images: Singles, folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of onnxq's default for both targets."""
    for target in ("x86-vnni", "portable"):
        path = folder / f"onnxq-{target}.onnx"
        save(onnxq.quantize(model, [{"image": images}], target=target), path)
        yield f"onnxq {target}", path


def logits(path: Path, images: Singles) -> Singles:
    model = session(path)
    parts = [
        model.run(None, {"image": images[i : i + BATCH]})[0] for i in range(0, len(images), BATCH)
    ]
    return np.concatenate(parts)


def measure(
    model: FloatModel, calibration: Singles, images: Singles, labels: npt.NDArray[np.uint8]
) -> list[Result]:
    """The float model first, then every quantized one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made: list[tuple[str, Path]] = [("float32", model.path)]
        makers: list[Callable[[Path, Singles, Path], Iterator[tuple[str, Path]]]]
        makers = [quantized_by_onnxq, quantized_by_onnxruntime]
        for maker in makers:
            made += maker(model.path, calibration, folder)
        runs = runs_on({name: session(path) for name, path in made}, {"image": images[:BATCH]})
        seconds = median_seconds(runs, ROUNDS)
        reference = logits(model.path, images)
        return [result(tool, path, reference, images, labels, seconds[tool]) for tool, path in made]


def result(
    tool: str,
    path: Path,
    reference: Singles,
    images: Singles,
    labels: npt.NDArray[np.uint8],
    seconds: float,
) -> Result:
    got = logits(path, images)
    correct = got.argmax(1) == labels
    uses = runtime.integer_nodes(runtime.optimized_graph(load(path)))
    integer = runtime.count(uses, runtime.NodeKind.INTEGER).total()
    floating = runtime.count(uses, runtime.NodeKind.FLOAT).total()
    return Result(
        tool,
        100 * float(correct.mean()),
        correct,
        sqnr_db(reference, got),
        integer,
        floating,
        path.stat().st_size,
        seconds,
    )


def table(model: FloatModel, results: list[Result]) -> str:
    """Markdown; `behind` is how many more images the best quantize_static variant gets right."""
    rest = [r for r in results if r.name.startswith("quantize_static")]
    best = max(int(r.correct.sum()) for r in rest)
    fastest = min(r.seconds for r in rest)
    names = (
        "model", "top-1 %", "behind best of quantize_static", "logits SQNR dB",
        "integer / float nodes", "MB", "x float speed", "x fastest quantize_static",
    )  # fmt: skip
    lines = [f"### {model.name} ({len(results[0].correct):,} test images)", "", head(*names)]
    for r in results:
        behind, nodes = best - int(r.correct.sum()), f"{r.integer_nodes} / {r.float_nodes}"
        ratios = [f"{seconds / r.seconds:.2f}" for seconds in (results[0].seconds, fastest)]
        quality = [f"{r.top1:.2f}", f"{behind:+d}", f"{r.sqnr_db:.2f}"]
        lines.append(line(r.name, *quality, nodes, f"{r.size_bytes / 1e6:.2f}", *ratios))
    return "\n".join(lines)


def main() -> None:
    for model, calibration, images, labels in chosen_models(__doc__):
        print(table(model, measure(model, calibration, images, labels)), "\n", flush=True)


if __name__ == "__main__":
    main()
