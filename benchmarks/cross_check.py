"""Every integer of whole models, ONNX Runtime beside the reference kernels: how many differ.

    python -m benchmarks cross_check     # a few minutes

ResNet-20, MobileNetV2 and MobileNetV2 with imbalanced channels, quantized for two targets in both
formats, over the 256 embedded calibration images in batches of 32: each integer node of the graph
that ONNX Runtime runs, on the inputs that it had, and the whole model file on the reference. Exit
code 1: an integer differs.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import Missed, Row, Table
from scripts._models import evaluation_data, float_models

if TYPE_CHECKING:
    from collections.abc import Iterator


TARGETS = ("x86-vnni", "portable")
FORMATS = ("qdq", "qoperator")
BATCH = 32
MODELS = Table(
    "models",
    {
        **{"model": "", "target": "", "format": "", "integer nodes": "", "elements": ","},
        **{"differ": "", "not checked": "", "outputs that differ": "", "wall s": ".1f"},
    },
    keys=3,
)


@benchmark(MODELS, needs=("torch",))
def measure() -> Iterator[Row | Missed]:
    """The findings of each quantized model."""
    images = evaluation_data(None)[0]
    with tempfile.TemporaryDirectory() as folder:
        ways = itertools.product(float_models(Path(folder), images), TARGETS, FORMATS)
        for model, target, form in ways:
            quantized = onnxq.quantize(model.path, [{"image": images}], target=target, format=form)
            start = time.perf_counter()
            found = onnxq.cross_check(quantized, onnxq.Samples({"image": images}, batch_size=BATCH))
            seconds = time.perf_counter() - start
            yield MODELS.row(
                model.name,
                target,
                form,
                len(found.nodes),
                sum(node.elements for node in found.nodes),
                sum(node.differing for node in found.nodes),
                len(found.unchecked),
                sum(output.differing for output in found.outputs),
                seconds,
            )
            if not found.exact:
                yield Missed(f"{model.name}, {target}, {form}: an integer differs, or did not run")
