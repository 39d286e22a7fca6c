"""Modules made of parts that are quantized one by one."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import QUANTIZABLE, refusing
from onnxq.pytorch.nn.quantizable.activation import MultiheadAttention

__all__ = ["MultiheadAttention"]

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QUANTIZABLE)
