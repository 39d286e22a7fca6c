"""Layers with the ReLU behind them, on int8 weights: one kernel each where they are deployed."""

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
