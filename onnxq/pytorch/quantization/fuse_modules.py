"""Fusing by names, by torch's name of its module."""

from typing import TYPE_CHECKING

from onnxq.pytorch.eager.fuse_modules import fuse_known_modules, fuse_modules, fuse_modules_qat
from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.quantization.refused import REFUSED

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, REFUSED)

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]
