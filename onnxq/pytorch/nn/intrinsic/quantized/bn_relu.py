"""Batch norm and ReLU."""

from __future__ import annotations

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized.normalization import BatchNorm2d, BatchNorm3d


class BNReLU2d(BatchNorm2d):
    """max(batch norm(x), 0), fake-quantized."""

    float_type = intrinsic.BNReLU2d


class BNReLU3d(BatchNorm3d):
    """max(batch norm(x), 0), fake-quantized."""

    float_type = intrinsic.BNReLU3d
