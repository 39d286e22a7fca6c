"""Linear layer and ReLU."""

from __future__ import annotations

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized.linear import Linear


class LinearReLU(Linear):
    """max(linear(x), 0), fake-quantized."""

    float_type = intrinsic.LinearReLU
