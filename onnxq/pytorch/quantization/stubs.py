"""Stubs, by torch's name of their module."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub, QuantWrapper
from onnxq.pytorch.quantization.refused import REFUSED

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, REFUSED)

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]
