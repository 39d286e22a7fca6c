"""CPU time that the verdict adds to quantizing: with and without, in turns.

    python -m benchmarks verdict [--rounds 5]

Each row quantizes and writes one model, with `check=onnxq.Check.NONE` and with the default, on the
same samples, and compares medians of the process's CPU time.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import torch

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_rounds
from benchmarks.harness.table import Row, Table
from models.cifar10 import load_sample
from onnxq.pytorch import load_module
from scripts._timing import median_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.quantized.quantized_model import QuantizedModel

    Quantize = Callable[[onnxq.Check], QuantizedModel]

MODELS = Table(
    "models",
    {"": "", "without": "{:.2f} s", "with": "{:.2f} s", "added": "+.1%", "verdict": ""},
)
WIDTH, HEADS, INNER, TOKENS = 768, 12, 3072, 128  # BERT-base


def image_model(name: str, factory: str) -> ir.Model:
    """One of models/, exported."""
    images = load_sample("calibration")[0]
    module = load_module(factory, f"models/{name}.safetensors")
    return onnxq.export(module, torch.from_numpy(images[:2]))


def bert_layer() -> ir.Model:
    """An encoder layer of BERT-base's sizes, with weights drawn at random."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, activation="gelu", batch_first=True
    )
    return onnxq.export(layer.eval(), torch.zeros(2, TOKENS, WIDTH))


def static(model: ir.Model, x: npt.NDArray[np.float32], batch: int) -> Quantize:
    """Quantizes on the samples, `batch` of them a run."""
    name = str(model.graph.inputs[0].name)
    samples = [{name: x[i : i + batch]} for i in range(0, len(x), batch)]
    return lambda check: onnxq.quantize(model, samples, check=check)


def models() -> dict[str, Quantize]:
    """Functions that quantize each model, given a Check."""
    images = load_sample("calibration")[0]
    resnet = image_model("resnet20", "models.resnet:resnet20")
    mobilenet = image_model("mobilenetv2", "models.mobilenet:mobilenetv2")
    bert = bert_layer()
    noise = np.random.default_rng(0).standard_normal((32, TOKENS, WIDTH), np.float32)
    return {
        "ResNet-20, 256 images, one a run": static(resnet, images, 1),
        "ResNet-20, 256 images, 32 a run": static(resnet, images, 32),
        "ResNet-20, 16 images, one a run": static(resnet, images[:16], 1),
        "MobileNetV2, 256 images, one a run": static(mobilenet, images, 1),
        "MobileNetV2, 256 images, all in one run": static(mobilenet, images, 256),
        "BERT layer, 32 sequences, one a run": static(bert, noise, 1),
        "BERT layer, 8 sequences, one a run": static(bert, noise[:8], 1),
        "BERT layer, dynamic": lambda check: onnxq.quantize_dynamic(bert, check=check),
    }


def written(quantize: Quantize, check: onnxq.Check) -> None:
    """Quantizes a model and writes it: large weights are rounded when they are first needed."""
    quantize(check).to_bytes()


@benchmark(MODELS, needs=("torch",))
@with_rounds(5)
def measure(rounds: int) -> Iterator[Row]:
    """Seconds without and with, and what the verdict says."""
    for name, quantize in models().items():
        runs = {
            name: functools.partial(written, quantize, check)
            for name, check in (
                ("NONE", onnxq.Check.NONE),
                ("CALIBRATION", onnxq.Check.CALIBRATION),
            )
        }
        seconds = median_seconds(runs, rounds)
        without, beside = seconds["NONE"], seconds["CALIBRATION"]
        verdict = quantize(onnxq.Check.CALIBRATION).verdict
        assert verdict is not None
        seen = f"{verdict.samples} of {verdict.samples_in_all}" if verdict.outputs else "it runs"
        if verdict.speedup is not None:
            seen += f", {verdict.speedup:.2f}x"
        yield MODELS.row(name, without, beside, beside / without - 1, seen)
