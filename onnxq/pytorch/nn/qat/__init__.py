"""Layers for quantization-aware training: float arithmetic on fake-quantized weights."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import QAT, refusing
from onnxq.pytorch.nn.qat import conv
from onnxq.pytorch.nn.qat.base import QatModule as QatModule
from onnxq.pytorch.nn.qat.conv import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.nn.qat.embedding import Embedding as Embedding
from onnxq.pytorch.nn.qat.linear import Linear as Linear

__all__ = sorted(
    [
        *conv.__all__,  # type: ignore[attr-defined]  # computed
        "Embedding",
        "Linear",
        "QatModule",
    ]
)

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QAT)
