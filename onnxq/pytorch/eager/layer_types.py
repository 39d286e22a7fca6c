"""Which modules are quantized: what trains in place of what, and whose result is observed."""

from __future__ import annotations

from torch import nn

from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub
from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.train.mappings import QAT_MAPPING

COMPUTING: tuple[type[nn.Module], ...] = (
    QuantStub,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Linear,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.LeakyReLU,
    nn.PReLU,
    nn.ReLU6,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softmax,
    nn.Tanh,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.Upsample,
    nn.UpsamplingBilinear2d,
    intrinsic.ConvReLU1d,
    intrinsic.ConvReLU2d,
    intrinsic.ConvReLU3d,
    intrinsic.ConvTransposeReLU1d,
    intrinsic.ConvTransposeReLU2d,
    intrinsic.ConvTransposeReLU3d,
    intrinsic.LinearReLU,
    intrinsic.BNReLU2d,
    intrinsic.BNReLU3d,
    *QAT_MAPPING.values(),
)
"""Types whose result is observed, or fake-quantized."""

UNFOLDED = (
    intrinsic.ConvBn1d,
    intrinsic.ConvBn2d,
    intrinsic.ConvBn3d,
    intrinsic.ConvBnReLU1d,
    intrinsic.ConvBnReLU2d,
    intrinsic.ConvBnReLU3d,
    intrinsic.ConvTransposeBn1d,
    intrinsic.ConvTransposeBn2d,
    intrinsic.ConvTransposeBn3d,
    intrinsic.ConvTransposeBnReLU1d,
    intrinsic.ConvTransposeBnReLU2d,
    intrinsic.ConvTransposeBnReLU3d,
    intrinsic.LinearBn1d,
)
"""Batch norm that was fused in train mode."""

WHOLE = (*COMPUTING, FakeQuantize, DeQuantStub, nn.MultiheadAttention, *UNFOLDED)
"""Types that are not looked into."""
