r"""Fine-tunes MobileNetV2 of models/ with fake quantization, and exports what was trained.

    python scripts/train_qat.py 8 --data cifar10_jpeg.npz -o models/mobilenetv2_qat8.safetensors
    python scripts/train_qat.py 4 --data cifar10_jpeg.npz -o models/mobilenetv2_qat4.safetensors \
        --bfloat16

These made the files in models/, in 10 to 15 minutes of one core: 86.71% with 8-bit weights and
86.75% with 4-bit weights on the 10,000 test images (float: 86.69%), as ONNX Runtime computes them.

It starts from the float weights; the float model is also the teacher, whose probabilities the
quantized one is trained towards. Batch norm has its running statistics, folded into the weights, so
that each step computes what is deployed.

    8 bits      integers in [-127, 127], scale absmax / 127 of the weights as they are
    4 bits      integers in [-7, 7], stored as int8 so that ONNX Runtime runs QLinearConv; scales
    are
                learned (LSQ), from those with the least squared error
    activations 8 bits, moving averages of the batches' ranges, which rest from the second epoch on

The output holds the state of the converted module: integers and scales. A learning rate of 0.05
diverged: with statistics frozen, nothing brings a weight back that has grown.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import kl_div, log_softmax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

from models.cifar10 import load_sample
from onnxq.observers import LeastErrorObserver
from onnxq.ort import runtime
from onnxq.pytorch import convert, disable_observer, export, load_module, prepare_qat
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfig,
    QConfigMapping,
    ScaleRule,
    get_default_qat_qconfig,
)
from scripts.train import BATCH, CONVOLUTIONAL, Course, Images, accuracy, load_images, train

if TYPE_CHECKING:
    from torch import Tensor

FLOAT = Path(__file__).resolve().parent.parent / "models" / "mobilenetv2.safetensors"
BITS = (4, 8)
PEAK_LR = 0.005
EPOCHS = 2
TARGET = "x86-vnni"  # 8-bit weights in [-127, 127]; 4-bit ones are the same for every target


def qconfig(bits: int) -> QConfigMapping:
    """How weights of so many bits are trained."""
    entry = get_default_qat_qconfig()
    if bits == 4:
        start = LeastErrorObserver.with_args(quant_min=-7, quant_max=7)
        entry = QConfig(entry.activation, FakeQuantSpec(start, ScaleRule.LEARNED))
    return QConfigMapping(entry)


def prepared(bits: int, observed: int = 256) -> nn.Module:
    """The model to train, with the float weights; it has seen so many of the embedded images."""
    model = load_module("models.mobilenet:mobilenetv2", FLOAT)
    images = torch.from_numpy(load_sample("calibration")[0][:observed])
    return prepare_qat(model, inputs=images, qconfig=qconfig(bits), target=TARGET)


def course(teacher: nn.Module, checkpoint: Path | None) -> Course:
    """Trains towards the teacher's probabilities; freezes ranges on the way."""

    def loss(x: Tensor, logits: Tensor, _: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = log_softmax(teacher(x), 1)
        return kl_div(log_softmax(logits, 1), wanted, reduction="batchmean", log_target=True)

    def starts(model: nn.Module, epoch: int) -> None:
        model.apply(freeze_bn_stats)
        if epoch > 0:
            for name, part in model.named_modules():
                if not name.endswith("weight_fake_quant"):
                    disable_observer(part)

    def ends(model: nn.Module, epoch: int) -> None:
        if checkpoint is not None:
            torch.save({"epoch": epoch, "model": model.state_dict()}, checkpoint)

    return Course(loss, starts, ends, test_every=1)


def save(module: nn.Module, path: Path) -> None:
    """Writes the state of a converted module."""
    # some buffers stand for several tensors: a file has each of them once for every name
    save_file({name: x.clone().contiguous() for name, x in module.state_dict().items()}, path)


def deployed(bits: int, path: Path) -> nn.Module:
    """The converted module whose state a file holds."""
    module = convert(prepared(bits, observed=4).eval())
    module.load_state_dict(load_file(path))
    return module.eval()


def top1_on_onnx_runtime(module: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images whose largest logit is their label, of the exported module."""
    with runtime.open_session(export(module, images[:4]), threads=1) as session:
        logits = [session.run({"image": x.numpy()})[0] for x in torch.split(images, BATCH)]
    tops = np.concatenate([batch.argmax(1) for batch in logits])
    return float((tops == labels.numpy()).mean())


def first(images: Images, count: int) -> Images:
    """So many images of each split."""
    return Images(*(getattr(images, f.name)[:count] for f in dataclasses.fields(images)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bits", type=int, choices=BITS, help="of the weights")
    parser.add_argument("--data", type=Path, required=True, help="npz of JPEG files")
    parser.add_argument("-o", "--output", type=Path, required=True, help="safetensors")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--lr", type=float, default=PEAK_LR, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--bfloat16", action="store_true", help="forward pass under autocast")
    parser.add_argument("--images", type=int, help="the first so many of each split: a trial")
    parser.add_argument("--checkpoint", type=Path, help="written after every epoch")
    parser.add_argument("--resume", type=Path, help="a checkpoint; with --epochs 0 it is exported")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = prepared(args.bits)
    if args.resume is not None:
        model.load_state_dict(torch.load(args.resume)["model"])
    data = load_images(args.data)
    if args.images:
        data = first(data, args.images)
    if args.epochs:
        teacher = load_module("models.mobilenet:mobilenetv2", FLOAT)
        teacher.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub
        untrained = accuracy(copy.deepcopy(model), data.test, data.test_labels)
        print(f"before training: {100 * untrained:.2f}%", flush=True)
        recipe = dataclasses.replace(CONVOLUTIONAL, peak_lr=args.lr, warm_up=0.1, anneal="cos")
        plan = course(teacher, args.checkpoint)
        train(model, recipe, data, args.epochs, args.seed, args.bfloat16, plan)
    quantized = convert(model.apply(disable_observer).eval())
    save(quantized, args.output)
    top1 = top1_on_onnx_runtime(quantized, data.test, data.test_labels)
    print(f"wrote {args.output}: top-1 {100 * top1:.2f}% on ONNX Runtime")


if __name__ == "__main__":
    main()
