r"""Fine-tunes MobileNetV2 of models/ with fake quantization, and exports what was trained.

    python scripts/train_qat.py 8 --data cifar10_jpeg.npz -o models/mobilenetv2_qat8.onnx \
        --epochs 3 --threads 1
    python scripts/train_qat.py 4 --data cifar10_jpeg.npz -o models/mobilenetv2_qat4.onnx \
        --epochs 6 --threads 1

It starts from the float weights; the float model is also the teacher, whose probabilities the
quantized one is trained towards. Batch norm has its running statistics, folded into the weights,
so that each step computes what is deployed (with 4 bits it follows the batches in the first epoch).

    8 bits      codes in [-127, 127], scale absmax / 127 of the weights as they are
    4 bits      codes in [-7, 7], stored as int8 so that ONNX Runtime runs QLinearConv; scales are
                learned (LSQ), from those with the least squared error
    activations 8 bits, moving averages, which rest from the second epoch on
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import kl_div, log_softmax

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

from models.cifar10 import load_sample
from onnxq.observers import LeastErrorObserver
from onnxq.pytorch import disable_observer, load_module
from onnxq.pytorch.graph_prepare import prepare_graph_qat
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfig,
    QConfigMapping,
    ScaleRule,
    get_default_qat_qconfig,
)
from scripts.train import CONVOLUTIONAL, Course, accuracy, load_images, train

if TYPE_CHECKING:
    from torch import Tensor

FLOAT = Path(__file__).resolve().parent.parent / "models" / "mobilenetv2.safetensors"
PEAK_LR = {8: 0.005, 4: 0.005}
LIVE_EPOCHS = {8: 0, 4: 0}
TARGET = "x86-vnni"  # 8-bit weights in [-127, 127]; 4-bit ones are the same for every target


def qconfig(bits: int) -> QConfigMapping:
    """How weights of so many bits are trained."""
    entry = get_default_qat_qconfig()
    if bits == 4:
        start = LeastErrorObserver.with_args(quant_min=-7, quant_max=7)
        entry = QConfig(entry.activation, FakeQuantSpec(start, ScaleRule.LEARNED))
    return QConfigMapping(entry)


def prepared(bits: int) -> nn.Module:
    """The model to train, with the float weights."""
    model = load_module("models.mobilenet:mobilenetv2", FLOAT)
    images = torch.from_numpy(load_sample("calibration")[0])
    return prepare_graph_qat(model, images, qconfig(bits), TARGET)


def course(bits: int, teacher: nn.Module, checkpoint: Path | None) -> Course:
    """Trains towards the teacher's probabilities; freezes statistics and ranges on the way."""

    def loss(x: Tensor, logits: Tensor, _: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = log_softmax(teacher(x), 1)
        return kl_div(log_softmax(logits, 1), wanted, reduction="batchmean", log_target=True)

    def starts(model: nn.Module, epoch: int) -> None:
        if epoch >= LIVE_EPOCHS[bits]:
            model.apply(freeze_bn_stats)
        if epoch > LIVE_EPOCHS[bits]:
            for name, part in model.named_modules():
                if not name.endswith("weight_fake_quant"):
                    disable_observer(part)

    def ends(model: nn.Module, epoch: int) -> None:
        if checkpoint is not None:
            torch.save({"epoch": epoch, "model": model.state_dict()}, checkpoint)

    return Course(loss, starts, ends, test_every=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bits", type=int, choices=sorted(PEAK_LR), help="of the weights")
    parser.add_argument("--data", type=Path, help="npz of JPEG files")
    parser.add_argument("-o", "--output", type=Path, required=True, help="ONNX file")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--bfloat16", action="store_true", help="forward pass under autocast")
    parser.add_argument("--images", type=int, help="train on the first so many: a trial")
    parser.add_argument("--checkpoint", type=Path, help="written after every epoch")
    parser.add_argument("--resume", type=Path, help="a checkpoint; --epochs 0 exports it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = prepared(args.bits)
    if args.resume is not None:
        model.load_state_dict(torch.load(args.resume)["model"])
    if args.epochs:
        data = load_images(args.data)
        if args.images:
            data = dataclasses.replace(
                data,
                train=data.train[: args.images],
                train_labels=data.train_labels[: args.images],
                test=data.test[: args.images],
                test_labels=data.test_labels[: args.images],
            )
        teacher = load_module("models.mobilenet:mobilenetv2", FLOAT)
        teacher.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub
        untrained = accuracy(copy.deepcopy(model), data.test, data.test_labels)
        print(f"before training: {100 * untrained:.2f}%", flush=True)
        recipe = dataclasses.replace(
            CONVOLUTIONAL,
            peak_lr=args.lr or PEAK_LR[args.bits],
            warm_up=0.1,
            anneal="cos",
        )
        started = time.perf_counter()
        plan = course(args.bits, teacher, args.checkpoint)
        top1 = train(model, recipe, data, args.epochs, args.seed, args.bfloat16, plan)
        print(f"top-1 {100 * top1:.2f}% after {(time.perf_counter() - started) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
