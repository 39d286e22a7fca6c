"""Scripts, which are refused, by torch's name of their module."""

from typing import TYPE_CHECKING

from onnxq.pytorch.eager.jit import quantize_dynamic_jit, quantize_jit
from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.quantization.refused import REFUSED

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, REFUSED)

__all__ = ["quantize_dynamic_jit", "quantize_jit"]
