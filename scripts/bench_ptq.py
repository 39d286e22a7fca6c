"""Static quantization beside onnxruntime.quantization: accuracy, SQNR, speed, integer nodes.

    python scripts/bench_ptq.py                                  # the 1,000 embedded test images
    python scripts/bench_ptq.py --data cifar10_jpeg.npz          # all 10,000

Calibration: the 256 embedded training images, for every tool. Accuracy is paired: the same images
in the same order. Speed: one thread, CPU time, the sessions take turns; medians. SQNR: of the
logits against the float model's. Integer nodes: in ONNX Runtime's optimized graph, not the file.
The table that this printed is in scripts/bench_ptq.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.graph.io import load, save
from onnxq.ort import runtime
from scripts._models import FloatModel, evaluation_data, float_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FloatArray = npt.NDArray[np.float32]
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


class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Hands out one image at a time, as onnxruntime's own examples do."""

    def __init__(self, images: FloatArray) -> None:
        self.batches: Iterator[dict[str, FloatArray]] = iter([{"image": x[None]} for x in images])

    def get_next(self) -> dict[str, FloatArray] | None:
        """The next image, or None."""
        return next(self.batches, None)


def quantized_by_onnxruntime(
    model: Path, images: FloatArray, folder: Path
) -> Iterator[tuple[str, Path]]:
    """(name, file) of quantize_static's variants: QDQ, uint8 activations, int8 weights."""
    for granularity in ("per-channel", "per-tensor"):
        for method in (CalibrationMethod.MinMax, CalibrationMethod.Percentile):
            path = folder / f"ort-{granularity}-{method.name}.onnx"
            quantize_static(
                str(model),
                str(path),
                Reader(images),
                quant_format=QuantFormat.QDQ,
                per_channel=granularity == "per-channel",
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=method,
            )
            yield f"quantize_static {granularity} {method.name}", path


def quantized_by_onnxq(model: Path, images: FloatArray, folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of onnxq's default for both targets."""
    for target in ("x86-vnni", "portable"):
        path = folder / f"onnxq-{target}.onnx"
        save(onnxq.quantize(model, [{"image": images}], target=target), path)
        yield f"onnxq {target}", path


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def logits(path: Path, images: FloatArray) -> FloatArray:
    model = session(path)
    parts = [
        model.run(None, {"image": images[i : i + BATCH]})[0] for i in range(0, len(images), BATCH)
    ]
    return np.concatenate(parts)


def cpu_seconds(paths: list[Path], image: FloatArray) -> list[float]:
    """Median CPU seconds of one run per file; the files take turns, after a warm-up round."""
    sessions = [session(path) for path in paths]
    samples: list[list[float]] = [[] for _ in paths]
    for turn in range(ROUNDS + 1):
        for model, times in zip(sessions, samples, strict=True):
            started = time.process_time()
            model.run(None, {"image": image})
            if turn:
                times.append(time.process_time() - started)
    return [statistics.median(times) for times in samples]


def measure(
    model: FloatModel, calibration: FloatArray, images: FloatArray, labels: npt.NDArray[np.uint8]
) -> list[Result]:
    """The float model first, then every quantized one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made: list[tuple[str, Path]] = [("float32", model.path)]
        makers: list[Callable[[Path, FloatArray, Path], Iterator[tuple[str, Path]]]]
        makers = [quantized_by_onnxq, quantized_by_onnxruntime]
        for maker in makers:
            made += maker(model.path, calibration, folder)
        seconds = cpu_seconds([path for _, path in made], images[:BATCH])
        reference = logits(model.path, images)
        return [
            result(tool, path, reference, images, labels, cpu)
            for (tool, path), cpu in zip(made, seconds, strict=True)
        ]


def result(
    tool: str,
    path: Path,
    reference: FloatArray,
    images: FloatArray,
    labels: npt.NDArray[np.uint8],
    seconds: float,
) -> Result:
    got = logits(path, images)
    correct = got.argmax(1) == labels
    noise = np.square((got - reference).astype(np.float64)).sum()
    signal = np.square(reference.astype(np.float64)).sum()
    uses = runtime.integer_nodes(runtime.optimized_graph(load(path)))
    integer = runtime.count(uses, runtime.Arithmetic.INTEGER).total()
    floating = runtime.count(uses, runtime.Arithmetic.FLOAT).total()
    return Result(
        tool,
        100 * float(correct.mean()),
        correct,
        10 * np.log10(signal / noise) if noise else np.inf,
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
    lines = [
        f"### {model.name} ({len(results[0].correct):,} test images)",
        "",
        "| model | top-1 % | behind best of quantize_static | logits SQNR dB "
        "| integer / float nodes | MB | x float speed | x fastest quantize_static |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.name} | {r.top1:.2f} | {best - int(r.correct.sum()):+d} | {r.sqnr_db:.2f} "
        f"| {r.integer_nodes} / {r.float_nodes} | {r.size_bytes / 1e6:.2f} "
        f"| {results[0].seconds / r.seconds:.2f} | {fastest / r.seconds:.2f} |"
        for r in results
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="npz with all CIFAR-10 images as JPEG files")
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    args = parser.parse_args()
    calibration, images, labels = evaluation_data(args.data)
    with tempfile.TemporaryDirectory() as folder:
        for model in float_models(Path(folder), calibration):
            if not args.model or model.name in args.model:
                print(table(model, measure(model, calibration, images, labels)), "\n", flush=True)


if __name__ == "__main__":
    main()
