"""Convolution and ReLU, transposed too."""

from __future__ import annotations

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from onnxq.pytorch.nn.triplets import triplet

ConvReLU1d, ConvReLU2d, ConvReLU3d = triplet(
    __name__,
    "ConvReLU",
    "max(conv{n}d(x), 0), fake-quantized.",
    (Conv1d, Conv2d, Conv3d),
    float_type=lambda n: getattr(intrinsic, f"ConvReLU{n}d"),
)
ConvTransposeReLU1d, ConvTransposeReLU2d, ConvTransposeReLU3d = triplet(
    __name__,
    "ConvTransposeReLU",
    "max(conv_transpose{n}d(x), 0), fake-quantized.",
    (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d),
    float_type=lambda n: getattr(intrinsic, f"ConvTransposeReLU{n}d"),
)
