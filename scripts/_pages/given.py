"""Files that pages begin with: the trained models of this repository, exported and quantized."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from scripts._pages.page import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable


def put(names: list[str], folder: Path) -> None:
    """Copies of the files into the folder, made at their first use in this process.

    Args:
        names: "resnet20.onnx", or "resnet20.onnx as model.onnx" to have it under another name.
        folder: where they go.
    Raises:
        KeyError: a name that `MAKERS` does not have.
    """
    for each in names:
        name, _, alias = each.partition(" as ")
        shutil.copy(_kept() / MAKERS[name](name), folder / (alias or name))


@cache
def _kept() -> Path:
    return Path(mkdtemp(prefix="onnxq-pages-"))


@cache
def _exported(name: str) -> str:
    import torch

    import onnxq
    from models.cifar10 import load_sample
    from onnxq.pytorch import load_module

    stem = name.removesuffix(".onnx")
    module = load_module(FACTORIES[stem], ROOT / "models" / f"{stem}.safetensors")
    images, _ = load_sample("calibration")
    onnxq.export(module, torch.from_numpy(images[:4]), _kept() / name)
    return name


@cache
def _quantized(name: str) -> str:
    import onnxq

    source = name.replace(".int8", "")
    _exported(source)
    samples = ROOT / "models" / "calibration.npz"
    onnxq.quantize(_kept() / source, samples, target="x86-vnni").save(_kept() / name)
    return name


def _samples(name: str) -> str:
    shutil.copy(ROOT / "models" / name, _kept() / name)
    return name


FACTORIES = {
    "resnet20": "models.resnet:resnet20",
    "mobilenetv2": "models.mobilenet:mobilenetv2",
    "transformer": "models.transformer:transformer",
}
MAKERS: dict[str, Callable[[str], str]] = {
    **{f"{name}.onnx": _exported for name in FACTORIES},
    **{f"{name}.int8.onnx": _quantized for name in FACTORIES},
    "calibration.npz": _samples,
}
"""Name of a file -> the function that makes it."""
