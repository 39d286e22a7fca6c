"""The float models and images that the bench scripts measure on."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.core.arrays import Singles

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # models/ and scripts/ are no installed packages

MODELS = ("resnet20", "mobilenetv2", "mobilenetv2-imbalanced")
Labels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FloatModel:
    """A trained float model as an ONNX file."""

    name: str
    path: Path


def evaluation_data(data: Path | None) -> tuple[Singles, Singles, Labels]:
    """(calibration images, test images, test labels): embedded, or the test set of a full npz."""
    from models.cifar10 import load_jpeg_split, load_sample

    calibration = load_sample("calibration")[0]
    images, labels = load_sample("test") if data is None else load_jpeg_split(data, "test")
    return calibration, images, labels


def chosen_models(
    data: Path | None, names: Sequence[str]
) -> Iterator[tuple[FloatModel, Singles, Singles, Labels]]:
    """(model, calibration images, test images, test labels) of those names; none: of all."""
    found = evaluation_data(data)
    with tempfile.TemporaryDirectory() as folder:
        for model in float_models(Path(folder), found[0]):
            if not names or model.name in names:
                yield model, *found


def float_models(folder: Path, calibration: Singles) -> Iterator[FloatModel]:
    """ResNet-20, MobileNetV2 and MobileNetV2 with imbalanced channels, as files of the folder."""
    import torch  # needed for exporting only

    from onnxq.pytorch import export, load_module
    from scripts.make_imbalanced import imbalance

    for name, factory in (
        ("resnet20", "models.resnet:resnet20"),
        ("mobilenetv2", "models.mobilenet:mobilenetv2"),
    ):
        path = folder / f"{name}.onnx"
        module = load_module(factory, ROOT / "models" / f"{name}.safetensors")
        export(module, (torch.from_numpy(calibration[:2]),), path)
        yield FloatModel(name, path)
    path = folder / "mobilenetv2-imbalanced.onnx"
    imbalance(folder / "mobilenetv2.onnx", path, calibration)
    yield FloatModel("mobilenetv2-imbalanced", path)
