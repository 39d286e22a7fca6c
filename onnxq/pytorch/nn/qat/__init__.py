"""Layers for quantization-aware training: float arithmetic on fake-quantized weights."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.nn.qat.base import QatModule
from onnxq.pytorch.nn.qat.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from onnxq.pytorch.nn.qat.embedding import Embedding
from onnxq.pytorch.nn.qat.linear import Linear
from onnxq.pytorch.nn.refused import QAT

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "Linear",
    "QatModule",
]

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QAT)
