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


class ConvReLU1d(Conv1d):
    """max(conv1d(x), 0), fake-quantized."""

    float_type = intrinsic.ConvReLU1d


class ConvReLU2d(Conv2d):
    """max(conv2d(x), 0), fake-quantized."""

    float_type = intrinsic.ConvReLU2d


class ConvReLU3d(Conv3d):
    """max(conv3d(x), 0), fake-quantized."""

    float_type = intrinsic.ConvReLU3d


class ConvTransposeReLU1d(ConvTranspose1d):
    """max(conv_transpose1d(x), 0), fake-quantized."""

    float_type = intrinsic.ConvTransposeReLU1d


class ConvTransposeReLU2d(ConvTranspose2d):
    """max(conv_transpose2d(x), 0), fake-quantized."""

    float_type = intrinsic.ConvTransposeReLU2d


class ConvTransposeReLU3d(ConvTranspose3d):
    """max(conv_transpose3d(x), 0), fake-quantized."""

    float_type = intrinsic.ConvTransposeReLU3d
