"""Layers that hold integers and compute in their grids what is deployed.

They take and return float32 that lies on a grid, scale * (code - zero_point); `onnxq.export` writes
the codes. Arguments and names are those of torch.nn.quantized.
"""

from onnxq.pytorch.float_functional import FloatFunctional
from onnxq.pytorch.nn.quantized.activations import (
    ELU,
    Hardswish,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    ReLU6,
    Sigmoid,
    Softmax,
)
from onnxq.pytorch.nn.quantized.conv import Conv1d, Conv2d, Conv3d
from onnxq.pytorch.nn.quantized.linear import Linear
from onnxq.pytorch.nn.quantized.q_functional import QFunctional
from onnxq.pytorch.nn.quantized.requantize import DeQuantize, Quantize, Requantize

__all__ = [
    "ELU",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "DeQuantize",
    "FloatFunctional",
    "Hardswish",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "QFunctional",
    "Quantize",
    "ReLU",
    "ReLU6",
    "Requantize",
    "Sigmoid",
    "Softmax",
]
