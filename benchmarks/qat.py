"""MobileNetV2 trained with fake quantization: is what was trained what ONNX Runtime computes?

    python -m benchmarks qat --data cifar10_jpeg.npz     # the 10,000 test images; half an hour

Without --data, on the 1,000 embedded images. The weights are models/mobilenetv2_qat8.safetensors
and _qat4, of scripts/train_qat.py; beside them stands onnxq's post-training quantization with the
same integers. Exit code 1: layer by
layer fewer than 99.8% of the elements of a tensor are equal, or one is more than 1 step off; an
integer differs from the reference kernels; fewer than 99.8% of the images have the same largest
logit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data
from benchmarks.harness.table import Missed, Row, Table
from onnxq.observers import LeastErrorObserver, NarrowRangeObserver, PerChannelMinMaxObserver
from onnxq.ort import runtime
from onnxq.pytorch import export, load_module
from onnxq.pytorch.deployed import Deployed, Feeding, compare
from onnxq.qconfig import QConfig, QConfigMapping, default_qconfig_mapping, get_default_qconfig
from onnxq.qparams import per_channel_symmetric
from scripts._models import ROOT, evaluation_data
from scripts.train_qat import BITS, FLOAT, TARGET, deployed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir
    from torch import Tensor

BATCH = 100
TOP1 = Table("top1", {"MobileNetV2, weights of": "", "top-1 on 10,000 images": ".2%"})
AGREEMENT = Table(
    "agreement",
    {
        **{"weights of": "", "module against ONNX Runtime": "", "tensors": "", "elements": ","},
        **{"equal": ".4%", "equal in the worst tensor": "", "largest difference in LSB": ""},
        **{"same largest logit": "{0[0]:.2%} of {0[1]:,}"},
    },
    keys=2,
)
EXACT = Table(
    "exact",
    {
        **{"weights of": "", "integer nodes": "", "elements": ",", "differ": ""},
        **{"not checked": "", "outputs that differ": ""},
    },
)
TENSORS = Table(
    "tensors",
    {
        **{"weights of": "", "tensor": "", "elements": ",", "equal": ".2%"},
        **{"largest difference in LSB": ""},
    },
    keys=2,
)
EQUAL = 0.998  # share of elements, and of images
CHECKED = 200  # images for the reference kernels
FOUR_BITS = {
    "NarrowRangeObserver": NarrowRangeObserver.with_args(quant_max=7),
    "LeastErrorObserver": LeastErrorObserver.with_args(quant_min=-7, quant_max=7),
    "PerChannelMinMaxObserver": PerChannelMinMaxObserver.with_args(
        dtype="qint8", qscheme=per_channel_symmetric, quant_min=-7, quant_max=7
    ),
}


def top1(model: ir.Model, images: Tensor, labels: npt.NDArray[np.uint8]) -> float:
    """Share of images whose largest logit is their label, on ONNX Runtime."""
    hits = 0
    with runtime.open_session(model) as session:
        for i in range(0, len(images), BATCH):
            (logits,) = session.run({"image": images[i : i + BATCH].numpy()})
            hits += int((logits.argmax(1) == labels[i : i + BATCH]).sum())
    return hits / len(images)


def post_training(calibration: Tensor) -> dict[str, ir.Model]:
    """Name -> MobileNetV2 in float, and quantized without training."""
    float_model = export(load_module("models.mobilenet:mobilenetv2", FLOAT), calibration[:4])
    mappings = {"8 bits, after training": default_qconfig_mapping()}
    for name, observer in FOUR_BITS.items():
        entry = QConfig(get_default_qconfig().activation, observer)
        mappings[f"4 bits, after training, {name}"] = QConfigMapping(entry)
    samples = {"image": calibration.numpy()}
    models: dict[str, Any] = {"float": float_model}
    for name, mapping in mappings.items():
        models[name] = onnxq.quantize(float_model, samples, qconfig=mapping, target=TARGET)
    return models


def agreement(name: str, found: Deployed) -> Iterator[Row | Missed]:
    """The row of a module beside its file, and the bounds that it misses."""
    worst = min(found.tensors.values(), key=lambda one: one.share)
    elements = sum(one.elements for one in found.tensors.values())
    differing = sum(one.differing for one in found.tensors.values())
    largest = max(one.largest for one in found.tensors.values())
    yield AGREEMENT.row(
        name,
        found.feeding.value,
        len(found.tensors),
        elements,
        1 - differing / elements,
        f"{100 * worst.share:.4f}% ({worst.tensor})",
        largest,
        [found.agreement, found.rows],
    )
    close = worst.share >= EQUAL and largest <= 1
    if not (close or found.feeding is Feeding.FREE_RUNNING):
        yield Missed(f"{name}: elements of {worst.tensor} are not equal")
    if found.agreement < EQUAL:
        yield Missed(f"{name}: images have other largest logits")


def exact(name: str, model: ir.Model, images: Tensor) -> Iterator[Row | Missed]:
    """Integers of the model that differ from the reference kernels."""
    found = onnxq.cross_check(
        model, onnxq.Samples({"image": images[:CHECKED].numpy()}, batch_size=BATCH)
    )
    elements = sum(node.elements for node in found.nodes)
    differing = sum(node.differing for node in found.nodes)
    outputs = sum(one.differing for one in found.outputs)
    yield EXACT.row(name, len(found.nodes), elements, differing, len(found.unchecked), outputs)
    if not found.exact:
        yield Missed(f"{name}: an integer differs from the reference kernels")


@benchmark(TOP1, AGREEMENT, EXACT, TENSORS, needs=("torch",))
@with_data
def measure(data: Path | None) -> Iterator[Row | Missed]:
    """The rows of all tables."""
    calibration, test, labels = evaluation_data(data)
    images = torch.from_numpy(test)
    modules = {b: deployed(b, ROOT / "models" / f"mobilenetv2_qat{b}.safetensors") for b in BITS}
    exported = {bits: export(module, images[:4]) for bits, module in modules.items()}
    models = post_training(torch.from_numpy(calibration))
    models |= {f"{bits} bits, trained": model for bits, model in exported.items()}
    for name, model in models.items():
        yield TOP1.row(name, top1(model, images, labels))
    free: dict[str, Deployed] = {}
    for bits, module in modules.items():
        for feeding in Feeding:
            found = compare(module, exported[bits], torch.split(images, BATCH), feeding)
            yield from agreement(f"{bits} bits", found)
            if feeding is Feeding.FREE_RUNNING:
                free[f"{bits} bits"] = found
    for bits, model in exported.items():
        yield from exact(f"{bits} bits", model, images)
    for name, found in free.items():
        for one in found.tensors.values():
            yield TENSORS.row(name, one.tensor, one.elements, one.share, one.largest)
