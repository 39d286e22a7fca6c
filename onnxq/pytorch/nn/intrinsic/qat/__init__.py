"""Fused layers for quantization-aware training."""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import (
    WithBatchNorm,
    freeze_bn_stats,
    update_bn_stats,
)
from onnxq.pytorch.nn.intrinsic.qat.conv_fused import (
    ConvBn1d,
    ConvBn2d,
    ConvBn3d,
    ConvBnReLU1d,
    ConvBnReLU2d,
    ConvBnReLU3d,
    ConvReLU1d,
    ConvReLU2d,
    ConvReLU3d,
    ConvTransposeBn1d,
    ConvTransposeBn2d,
    ConvTransposeBn3d,
    ConvTransposeBnReLU1d,
    ConvTransposeBnReLU2d,
    ConvTransposeBnReLU3d,
    ConvTransposeReLU1d,
    ConvTransposeReLU2d,
    ConvTransposeReLU3d,
)
from onnxq.pytorch.nn.intrinsic.qat.linear_fused import LinearBn1d, LinearReLU
from onnxq.pytorch.nn.refused import INTRINSIC_QAT

__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "ConvTransposeBn1d",
    "ConvTransposeBn2d",
    "ConvTransposeBn3d",
    "ConvTransposeBnReLU1d",
    "ConvTransposeBnReLU2d",
    "ConvTransposeBnReLU3d",
    "ConvTransposeReLU1d",
    "ConvTransposeReLU2d",
    "ConvTransposeReLU3d",
    "LinearBn1d",
    "LinearReLU",
    "WithBatchNorm",
    "freeze_bn_stats",
    "update_bn_stats",
]

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, INTRINSIC_QAT)
