"""Accuracy that range reductions cost, by which x86 without VNNI computes the same integers.

    python scripts/bench_range.py                                  # the 1,000 embedded test images
    python scripts/bench_range.py --data cifar10_jpeg.npz          # all 10,000

Calibration, and the samples of `observed`: the 256 embedded training images. "layers" and
"channels" are those that gave up range, of those whose products are added in pairs; "scale" is the
geometric mean factor over these layers' channels. SQNR: of the logits against the float model's.
"can differ": what the weights alone say of x86-avx2; "differ": images whose logits a prediction
for x86-avx2 changes, of the first 200 test images.
The tables that this printed are in scripts/bench_range.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from onnxq import reference
from onnxq.checking.predict import predict
from onnxq.graph.io import save
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.observed_range import plan_observed
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from onnxq.targets.accumulation import Arithmetic
from onnxq.targets.range_reduction import RangeReduction
from scripts._models import FloatModel, evaluation_data, float_models
from scripts.bench_ptq import logits

FloatArray = npt.NDArray[np.float32]
BATCH = 64
COMPARED = 200


@dataclass(frozen=True, slots=True)
class Row:
    """One way to give up range, measured."""

    name: str
    layers: str
    channels: str
    factor: float
    top1: float
    sqnr_db: float
    can_differ: str
    differ: int


def planned(
    model: FloatModel, kind: RangeReduction | None, statistics: Statistics, images: FloatArray
) -> tuple[Plan, Path]:
    """The plan, and the file of the quantized model; None: the full range, x86-vnni."""
    if kind is None:
        prepared = prepare(model.path, None, "x86-vnni")
    else:
        prepared = prepare(model.path, None, "portable", range_reduction=kind)
    if kind is RangeReduction.OBSERVED:
        made = plan_observed(prepared, statistics, {"image": images}, batch_size=BATCH)
    else:
        made = plan(prepared, statistics)
    path = model.path.with_name(f"{model.name}-{kind or 'full'}.onnx")
    save(rewrite(prepared, made, "qdq"), path)
    return made, path


def differing(path: Path, images: FloatArray) -> int:
    """Images whose logits differ on a machine whose pairs of products saturate."""
    exact = reference.evaluator(path)
    machine = reference.evaluator(path, arithmetic=Arithmetic.SATURATES)
    count = 0
    for start in range(0, len(images), BATCH):
        feeds = {"image": images[start : start + BATCH]}
        ours, theirs = exact.run(None, feeds)[0], machine.run(None, feeds)[0]
        count += int(np.count_nonzero((ours != theirs).any(axis=1)))
    return count


def measure(
    model: FloatModel, calibration: FloatArray, images: FloatArray, labels: npt.NDArray[np.uint8]
) -> list[Row]:
    """The full range first, then every reduction."""
    reference_logits = logits(model.path, images)
    signal = np.square(reference_logits.astype(np.float64)).sum()
    statistics = calibrate(prepare(model.path, None, "portable"), {"image": calibration})
    everywhere, _ = planned(model, RangeReduction.EVERYWHERE, statistics, calibration)
    in_pairs = len(everywhere.reductions)
    channels = sum(r.of for r in everywhere.reductions.values())
    rows = []
    for kind in (None, *RangeReduction):
        made, path = planned(model, kind, statistics, calibration)
        got = logits(path, images)
        noise = np.square((got - reference_logits).astype(np.float64)).sum()
        reduced = made.reductions.values()
        raised = sum(r.channels for r in reduced)
        factors = sum(r.of * np.log(r.mean) for r in reduced) / channels
        machine = predict(path, None, "x86-avx2").on("x86-avx2")
        rows.append(
            Row(
                str(kind or "none (x86-vnni)"),
                f"{len(reduced)} of {in_pairs}",
                f"{raised} of {channels}",
                float(np.exp(factors)),
                100 * float((got.argmax(1) == labels).mean()),
                float(10 * np.log10(signal / noise)),
                f"{len(machine.risky_layers)} layers",
                differing(path, images[:COMPARED]),
            )
        )
    return rows


def table(model: FloatModel, images: int, rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        f"## {model.name} ({images:,} test images)",
        "",
        "| range reduction | layers | channels | scale | top-1 % | logits SQNR dB "
        f"| AVX2 can differ in | differ, of {COMPARED} images |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.name} | {r.layers} | {r.channels} | x {r.factor:.2f} | {r.top1:.2f} "
        f"| {r.sqnr_db:.2f} | {r.can_differ} | {r.differ} |"
        for r in rows
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
                rows = measure(model, calibration, images, labels)
                print(table(model, len(images), rows), "\n", flush=True)


if __name__ == "__main__":
    main()
