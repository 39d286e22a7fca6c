"""MobileNetV2 trained with fake quantization: is what was trained what ONNX Runtime computes?

    python -m benchmarks qat --data cifar10_jpeg.npz     # the 10,000 test images; half an hour

Without --data, on the 1,000 embedded images. The weights are models/mobilenetv2_qat8.safetensors
and _qat4, of scripts/train_qat.py; beside them stands onnxq's post-training quantization with the
same codes. The tables that this printed are in benchmarks/results/qat.md. Exit code 1: layer by
layer fewer than 99.8% of the elements of a tensor are equal, or one is more than 1 step off; an
integer differs from the reference kernels; fewer than 99.8% of the images have the same largest
logit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import onnxq
from onnxq.observers import LeastErrorObserver, NarrowRangeObserver, PerChannelMinMaxObserver
from onnxq.ort import runtime
from onnxq.pytorch import export, load_module
from onnxq.pytorch.deployed import Deployed, Feeding, compare
from onnxq.qconfig import QConfig, QConfigMapping, default_qconfig_mapping, get_default_qconfig
from onnxq.qparams import per_channel_symmetric
from scripts._models import ROOT, evaluation_data
from scripts._tables import head, line
from scripts.train_qat import BITS, FLOAT, TARGET, deployed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir
    from torch import Tensor

BATCH = 100
EQUAL = 0.998  # share of elements, and of images
CHECKED = 200  # images for the reference kernels
FOUR_BITS = {
    "NarrowRangeObserver": NarrowRangeObserver.with_args(quant_max=7),
    "LeastErrorObserver": LeastErrorObserver.with_args(quant_min=-7, quant_max=7),
    "PerChannelMinMaxObserver": PerChannelMinMaxObserver.with_args(
        dtype="qint8", qscheme=per_channel_symmetric, quant_min=-7, quant_max=7
    ),
}


def show(*cells: object) -> None:
    """Prints a row of a table."""
    print(line(*cells), flush=True)


def begin(*names: str) -> None:
    """Prints the head of a table."""
    print()
    print(head(*names))


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


def agreement(name: str, found: Deployed) -> bool:
    """Prints a row; whether the bounds hold."""
    worst = min(found.tensors.values(), key=lambda one: one.share)
    elements = sum(one.elements for one in found.tensors.values())
    differing = sum(one.differing for one in found.tensors.values())
    largest = max(one.largest for one in found.tensors.values())
    show(
        name,
        found.feeding.value,
        len(found.tensors),
        f"{elements:,}",
        f"{100 * (1 - differing / elements):.4f}%",
        f"{100 * worst.share:.4f}% ({worst.tensor})",
        largest,
        f"{100 * found.agreement:.2f}% of {found.rows:,}",
    )
    close = worst.share >= EQUAL and largest <= 1
    return found.agreement >= EQUAL and (close or found.feeding is Feeding.FREE_RUNNING)


def exact(name: str, model: ir.Model, images: Tensor) -> bool:
    """Prints how many integers of the model differ from the reference kernels; whether none."""
    found = onnxq.cross_check(
        model, onnxq.Samples({"image": images[:CHECKED].numpy()}, batch_size=BATCH)
    )
    elements = sum(node.elements for node in found.nodes)
    differing = sum(node.differing for node in found.nodes)
    outputs = sum(one.differing for one in found.outputs)
    show(name, len(found.nodes), f"{elements:,}", differing, len(found.unchecked), outputs)
    return found.exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="npz of JPEG files")
    args = parser.parse_args()
    torch.set_num_threads(1)
    calibration, test, labels = evaluation_data(args.data)
    images = torch.from_numpy(test)
    modules = {b: deployed(b, ROOT / "models" / f"mobilenetv2_qat{b}.safetensors") for b in BITS}
    exported = {bits: export(module, images[:4]) for bits, module in modules.items()}
    models = post_training(torch.from_numpy(calibration))
    models |= {f"{bits} bits, trained": model for bits, model in exported.items()}
    begin("MobileNetV2, weights of", f"top-1 on {len(images):,} images")
    for name, model in models.items():
        show(name, f"{100 * top1(model, images, labels):.2f}%")
    fine = True
    begin(
        "weights of", "module against ONNX Runtime", "tensors", "elements", "equal",
        "equal in the worst tensor", "largest difference in steps", "same largest logit",
    )  # fmt: skip
    runs: list[tuple[int, Deployed]] = []
    for bits, module in modules.items():
        for feeding in Feeding:
            found = compare(module, exported[bits], torch.split(images, BATCH), feeding)
            fine &= agreement(f"{bits} bits", found)
            runs.append((bits, found))
    begin("weights of", "integer nodes", "elements", "differ", "not checked", "outputs that differ")
    for bits, model in exported.items():
        fine &= exact(f"{bits} bits", model, images)
    for bits, found in runs:
        if found.feeding is Feeding.FREE_RUNNING:
            begin(f"free running, {bits} bits", "elements", "equal", "largest difference in steps")
            for one in found.tensors.values():
                show(one.tensor, f"{one.elements:,}", f"{100 * one.share:.2f}%", one.largest)
    if not fine:
        sys.exit("a bound is broken; see the head of this file")


if __name__ == "__main__":
    main()
