"""PyTorch's documented quantized functions, on QTensors: each runs an operator's NumPy kernel.

    y = conv2d(x, weight, bias, padding=1, scale=0.1, zero_point=120)
    z = add(y, y, scale=0.2, zero_point=128)

The kernels are those of onnxq's operators, bit-equal to ONNX Runtime, so that an integer of a
result is the one that the deployed model computes. PyTorch's own integers may be one LSB away.
Signatures are PyTorch's, with scale and zero_point of the result where that has them.
"""

from onnxq.functional.activations import (
    celu,
    clamp,
    elu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    relu,
    relu_,
    threshold,
)
from onnxq.functional.arithmetic import add, cat, mul
from onnxq.functional.layers import conv1d, conv2d, conv3d, linear
from onnxq.functional.pooling import (
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
)
from onnxq.functional.resizing import interpolate, upsample, upsample_bilinear, upsample_nearest

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "add",
    "avg_pool2d",
    "avg_pool3d",
    "cat",
    "celu",
    "clamp",
    "conv1d",
    "conv2d",
    "conv3d",
    "elu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "interpolate",
    "leaky_relu",
    "linear",
    "max_pool1d",
    "max_pool2d",
    "mul",
    "relu",
    "relu_",
    "threshold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
