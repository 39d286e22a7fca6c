"""CPU time that the verdict adds to quantizing: with and without, in turns.

    python -m benchmarks verdict [--rounds 5]

Each row quantizes and writes one model, with `check=onnxq.Check.NONE` and with the default, on the
same samples, and compares medians of the process's CPU time. What it printed is in
benchmarks/results/verdict.md.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

import onnxq
from models.cifar10 import load_sample
from onnxq.pytorch import load_module
from scripts._tables import head, line
from scripts._timing import median_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.quantized.quantized_model import QuantizedModel

    Quantize = Callable[[onnxq.Check], QuantizedModel]

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


def rows() -> dict[str, Quantize]:
    """Rows of the table: what quantizes a model, given a Check."""
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


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")  # of models drawn at random
    print(head("", "without", "with", "added", "verdict"))
    for name, quantize in rows().items():
        checks = {"NONE": onnxq.Check.NONE, "CALIBRATION": onnxq.Check.CALIBRATION}
        runs = {n: functools.partial(written, quantize, check) for n, check in checks.items()}
        seconds = median_seconds(runs, rounds)
        without, beside = seconds["NONE"], seconds["CALIBRATION"]
        verdict = quantize(onnxq.Check.CALIBRATION).verdict
        assert verdict is not None
        seen = f"{verdict.samples} of {verdict.samples_in_all}" if verdict.outputs else "it runs"
        if verdict.speedup is not None:
            seen += f", {verdict.speedup:.2f}x"
        added = beside / without - 1
        cells = (f"{without:.2f} s", f"{beside:.2f} s", f"{added:+.1%}", seen)
        print(line(name, *cells), flush=True)


if __name__ == "__main__":
    main()
