"""Layers that hold integers and compute in float what is deployed.

They take and return fake-quantized float32, scale * (q - zero_point); `onnxq.export` writes
the integers. Arguments and names are those of torch.nn.quantized.
"""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.nn.quantized import functional
from onnxq.pytorch.nn.quantized.activation import (
    ELU,
    Hardswish,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    ReLU6,
    Sigmoid,
    Softmax,
)
from onnxq.pytorch.nn.quantized.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from onnxq.pytorch.nn.quantized.embedding import Embedding, EmbeddingBag
from onnxq.pytorch.nn.quantized.linear import Linear
from onnxq.pytorch.nn.quantized.normalization import (
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
)
from onnxq.pytorch.nn.quantized.q_functional import QFunctional
from onnxq.pytorch.nn.quantized.requantize import DeQuantize, Quantize, Requantize
from onnxq.pytorch.nn.refused import QUANTIZED

__all__ = [
    "ELU",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Embedding",
    "EmbeddingBag",
    "FloatFunctional",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
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
    "functional",
]

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QUANTIZED)
