"""Vision transformers trained on CIFAR-10: that of models/, and one with a convolutional stem."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

import onnxq
from models.cifar10 import load_sample
from models.transformer import transformer as patches
from scripts._architectures._parts import Batch, Size
from scripts._defaults.case import Case, top1
from scripts._defaults.vit_stem import vit_stem as stem
from scripts._models import ROOT

if TYPE_CHECKING:
    from torch import nn

IMAGES = {Size.REAL: (256, 1000), Size.TINY: (4, 4)}  # to calibrate on, to test on
AT_ONCE = 50
VIT_STEM = "ONNXQ_VIT_STEM"
"""Environment variable that names the file of weights that scripts/train_vit_stem.py wrote."""


def transformer(size: Size, folder: Path) -> Case:
    """The transformer of models/, whose patches a Linear takes."""
    state = load_file(ROOT / "models" / "transformer.safetensors")
    return _case(patches(), state, size, folder)


def vit_stem(size: Size, folder: Path) -> Case:
    """The one of scripts/train_vit_stem.py; with random weights at Size.TINY.

    Raises:
        FileNotFoundError: the weights, which are not kept here, are not there.
    """
    torch.manual_seed(0)
    module = stem()
    state = module.state_dict()
    if size is Size.REAL:
        file = Path(os.environ.get(VIT_STEM, ""))
        if not file.is_file():
            raise FileNotFoundError(
                f"no weights of vit_stem at '{file}'. Train them with scripts/train_vit_stem.py, "
                f"and set {VIT_STEM} to the file."
            )
        state = load_file(file)
    return _case(module, state, size, folder)


def _case(module: nn.Module, state: dict[str, torch.Tensor], size: Size, folder: Path) -> Case:
    module.load_state_dict(state)
    calibrated, tested = IMAGES[size]
    calibration = load_sample("calibration")[0][:calibrated]
    images, labels = load_sample("test")
    images, labels = images[:tested], labels[:tested]
    path = folder / "float.onnx"
    onnxq.export(module.eval(), {"image": torch.from_numpy(images[:2])}, path)

    def batches(x: torch.Tensor) -> list[Batch]:
        return [{"image": part.numpy()} for part in torch.split(x, AT_ONCE)]

    return Case(
        path,
        batches(torch.from_numpy(calibration)),
        batches(torch.from_numpy(images)),
        {"": {"image": images[:1]}},
        top1(labels),
    )
