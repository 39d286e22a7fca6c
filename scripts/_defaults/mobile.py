"""Architectures of scripts/_architectures as cases, as onnxq exports them and at opset 11."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from scripts._architectures import build
from scripts._defaults.case import EXPORT_SEED, TOGETHER, drawn, exported

if TYPE_CHECKING:
    from pathlib import Path

    from scripts._architectures import Size
    from scripts._defaults.case import Case

OLD_OPSET = 11


def architecture(name: str, size: Size, folder: Path) -> Case:
    """The file that onnxq.export writes."""
    return exported(build(name, size), folder / "float.onnx")


def at_opset_11(name: str, size: Size, folder: Path) -> Case:
    """The file that torch's older exporter writes: onnxq's own starts at opset 18."""
    module, feeds = build(name, size)
    inputs = feeds(TOGETHER, EXPORT_SEED)
    path = folder / "float.onnx"
    with warnings.catch_warnings():  # it is deprecated, and says so
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            opset_version=OLD_OPSET,
            dynamic_axes={key: {0: "batch"} for key in inputs},
            dynamo=False,
        )
    return drawn(path, feeds)
