"""Accuracy that reduced ranges cost, by which x86 without VNNI computes the same integers.

    python -m benchmarks range                                  # the 1,000 embedded test images
    python -m benchmarks range --data cifar10_jpeg.npz          # all 10,000

Calibration, and the samples of `observed`: the 256 embedded training images. "layers" and
"channels": those with a reduced range, of those whose products are added in pairs; "scale": the
geometric mean factor over these layers' channels. SQNR: of the logits against the float model's.
"can differ": what the weights alone say of x86-avx2; "differ": images whose logits a prediction
for x86-avx2 changes, of the first 200 test images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data, with_names
from benchmarks.harness.table import Row, Table
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
from onnxq.targets.accumulation import SaturationMode
from onnxq.targets.reduce_range import ReduceRange
from scripts._models import MODELS, FloatModel, chosen_models
from scripts._tables import sqnr_db

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onnxq.core.arrays import Singles

BATCH = 64
COMPARED = 200
SHARE = "{0[0]:,} of {0[1]:,}"


REDUCTIONS = Table(
    "reductions",
    {
        **{"model": "", "reduced range": "", "layers": SHARE, "channels": SHARE},
        **{"scale": "x {:.2f}", "top-1 %": ".2f", "logits SQNR dB": ".2f"},
        **{"AVX2 can differ in": "", f"differ, of {COMPARED} images": ""},
    },
    keys=2,
)


def planned(
    model: FloatModel, kind: ReduceRange | None, statistics: Statistics, images: Singles
) -> tuple[Plan, Path]:
    """The plan, and the file of the quantized model; None: the full range, x86-vnni."""
    if kind is None:
        prepared = prepare(model.path, None, "x86-vnni")
    else:
        prepared = prepare(model.path, None, targets.find("portable").with_reduce_range(kind))
    if kind is ReduceRange.OBSERVED:
        made = plan_observed(prepared, statistics, Samples({"image": images}, batch_size=BATCH))
    else:
        made = plan(prepared, statistics)
    path = model.path.with_name(f"{model.name}-{kind or 'full'}.onnx")
    save(rewrite(prepared, made, "qdq"), path)
    return made, path


def differing(path: Path, images: Singles) -> int:
    """Images whose logits differ on a machine whose pairs of products saturate."""
    exact = reference.evaluator(path)
    machine = reference.evaluator(path, saturation_mode=SaturationMode.SATURATES)
    count = 0
    for start in range(0, len(images), BATCH):
        feeds = {"image": images[start : start + BATCH]}
        ours, theirs = exact.run(None, feeds)[0], machine.run(None, feeds)[0]
        count += int(np.count_nonzero((ours != theirs).any(axis=1)))
    return count


def reductions(
    model: FloatModel, calibration: Singles, images: Singles, labels: npt.NDArray[np.uint8]
) -> Iterator[Row]:
    """The full range first, then every reduction."""
    reference_logits = logits(model.path, images)
    statistics = calibrate(prepare(model.path, None, "portable"), {"image": calibration})
    everywhere, _ = planned(model, ReduceRange.EVERYWHERE, statistics, calibration)
    in_pairs = len(everywhere.reductions)
    channels = sum(r.of for r in everywhere.reductions.values())
    for kind in (None, *ReduceRange):
        made, path = planned(model, kind, statistics, calibration)
        got = logits(path, images)
        reduced = made.reductions.values()
        factors = sum(r.of * np.log(r.mean) for r in reduced) / channels
        machine = predict(path, None, "x86-avx2").on("x86-avx2")
        yield REDUCTIONS.row(
            model.name,
            str(kind or "none (x86-vnni)"),
            [len(reduced), in_pairs],
            [sum(r.channels for r in reduced), channels],
            np.exp(factors),
            100 * (got.argmax(1) == labels).mean(),
            sqnr_db(reference_logits, got),
            f"{len(machine.risky_layers)} layers",
            differing(path, images[:COMPARED]),
        )


@benchmark(REDUCTIONS, needs=("torch",))
@with_data
@with_names(MODELS)
def measure(data: Path | None, names: Sequence[str]) -> Iterator[Row]:
    """Rows of each model."""
    for each in chosen_models(data, names):
        yield from reductions(*each)
