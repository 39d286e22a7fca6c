"""Graph mode's names, each refused with what to use: quantizers need no stubs here anyway."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.quantization.refused import REFUSED

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, REFUSED)
