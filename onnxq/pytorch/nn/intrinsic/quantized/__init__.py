"""Layers with the ReLU behind them, on int8 weights: one kernel each where they are deployed."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.nn.intrinsic.quantized.bn_relu import BNReLU2d, BNReLU3d
from onnxq.pytorch.nn.intrinsic.quantized.conv_relu import (
    ConvReLU1d,
    ConvReLU2d,
    ConvReLU3d,
    ConvTransposeReLU1d,
    ConvTransposeReLU2d,
    ConvTransposeReLU3d,
)
from onnxq.pytorch.nn.intrinsic.quantized.linear_relu import LinearReLU
from onnxq.pytorch.nn.refused import INTRINSIC_QUANTIZED

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "ConvTransposeReLU1d",
    "ConvTransposeReLU2d",
    "ConvTransposeReLU3d",
    "LinearReLU",
]

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, INTRINSIC_QUANTIZED)
