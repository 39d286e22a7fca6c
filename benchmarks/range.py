"""Accuracy that range reductions cost, by which x86 without VNNI computes the same integers.

    python -m benchmarks range                                  # the 1,000 embedded test images
    python -m benchmarks range --data cifar10_jpeg.npz          # all 10,000

Calibration, and the samples of `observed`: the 256 embedded training images. "layers" and
"channels" are those that gave up range, of those whose products are added in pairs; "scale" is the
geometric mean factor over these layers' channels. SQNR: of the logits against the float model's.
"can differ": what the weights alone say of x86-avx2; "differ": images whose logits a prediction
for x86-avx2 changes, of the first 200 test images.
The tables that this printed are in benchmarks/results/range.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from typing import TYPE_CHECKING

from benchmarks.ptq import logits
from onnxq import reference, targets
from onnxq.checking.predict import predict
from onnxq.graph.io import save
from onnxq.samples import Samples
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.observed_range import plan_observed
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from onnxq.targets.accumulation import Arithmetic
from onnxq.targets.range_reduction import RangeReduction
from scripts._models import FloatModel, chosen_models
from scripts._tables import head, line, sqnr_db

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

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
    model: FloatModel, kind: RangeReduction | None, statistics: Statistics, images: Singles
) -> tuple[Plan, Path]:
    """The plan, and the file of the quantized model; None: the full range, x86-vnni."""
    if kind is None:
        prepared = prepare(model.path, None, "x86-vnni")
    else:
        prepared = prepare(model.path, None, targets.find("portable").with_range_reduction(kind))
    if kind is RangeReduction.OBSERVED:
        made = plan_observed(prepared, statistics, Samples({"image": images}, batch_size=BATCH))
    else:
        made = plan(prepared, statistics)
    path = model.path.with_name(f"{model.name}-{kind or 'full'}.onnx")
    save(rewrite(prepared, made, "qdq"), path)
    return made, path


def differing(path: Path, images: Singles) -> int:
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
    model: FloatModel, calibration: Singles, images: Singles, labels: npt.NDArray[np.uint8]
) -> list[Row]:
    """The full range first, then every reduction."""
    reference_logits = logits(model.path, images)
    statistics = calibrate(prepare(model.path, None, "portable"), {"image": calibration})
    everywhere, _ = planned(model, RangeReduction.EVERYWHERE, statistics, calibration)
    in_pairs = len(everywhere.reductions)
    channels = sum(r.of for r in everywhere.reductions.values())
    rows = []
    for kind in (None, *RangeReduction):
        made, path = planned(model, kind, statistics, calibration)
        got = logits(path, images)
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
                sqnr_db(reference_logits, got),
                f"{len(machine.risky_layers)} layers",
                differing(path, images[:COMPARED]),
            )
        )
    return rows


def table(model: FloatModel, images: int, rows: list[Row]) -> str:
    """Markdown."""
    names = (
        "range reduction", "layers", "channels", "scale", "top-1 %", "logits SQNR dB",
        "AVX2 can differ in", f"differ, of {COMPARED} images",
    )  # fmt: skip
    lines = [f"## {model.name} ({images:,} test images)", "", head(*names)]
    for r in rows:
        figures = [f"x {r.factor:.2f}", f"{r.top1:.2f}", f"{r.sqnr_db:.2f}"]
        lines.append(line(r.name, r.layers, r.channels, *figures, r.can_differ, r.differ))
    return "\n".join(lines)


def main() -> None:
    for model, calibration, images, labels in chosen_models(__doc__):
        print(
            table(model, len(images), measure(model, calibration, images, labels)), "\n", flush=True
        )


if __name__ == "__main__":
    main()
