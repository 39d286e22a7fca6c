"""Which modules are quantized: what trains in place of what, and whose result is observed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub
from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize

if TYPE_CHECKING:
    from collections.abc import Mapping

QAT_MAPPING: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: qat.Conv1d,
    nn.Conv2d: qat.Conv2d,
    nn.Conv3d: qat.Conv3d,
    nn.ConvTranspose1d: qat.ConvTranspose1d,
    nn.ConvTranspose2d: qat.ConvTranspose2d,
    nn.ConvTranspose3d: qat.ConvTranspose3d,
    nn.Linear: qat.Linear,
    nn.Embedding: qat.Embedding,
    intrinsic.ConvBn1d: fused.ConvBn1d,
    intrinsic.ConvBn2d: fused.ConvBn2d,
    intrinsic.ConvBn3d: fused.ConvBn3d,
    intrinsic.ConvBnReLU1d: fused.ConvBnReLU1d,
    intrinsic.ConvBnReLU2d: fused.ConvBnReLU2d,
    intrinsic.ConvBnReLU3d: fused.ConvBnReLU3d,
    intrinsic.ConvReLU1d: fused.ConvReLU1d,
    intrinsic.ConvReLU2d: fused.ConvReLU2d,
    intrinsic.ConvReLU3d: fused.ConvReLU3d,
    intrinsic.ConvTransposeBn1d: fused.ConvTransposeBn1d,
    intrinsic.ConvTransposeBn2d: fused.ConvTransposeBn2d,
    intrinsic.ConvTransposeBn3d: fused.ConvTransposeBn3d,
    intrinsic.ConvTransposeBnReLU1d: fused.ConvTransposeBnReLU1d,
    intrinsic.ConvTransposeBnReLU2d: fused.ConvTransposeBnReLU2d,
    intrinsic.ConvTransposeBnReLU3d: fused.ConvTransposeBnReLU3d,
    intrinsic.ConvTransposeReLU1d: fused.ConvTransposeReLU1d,
    intrinsic.ConvTransposeReLU2d: fused.ConvTransposeReLU2d,
    intrinsic.ConvTransposeReLU3d: fused.ConvTransposeReLU3d,
    intrinsic.LinearReLU: fused.LinearReLU,
    intrinsic.LinearBn1d: fused.LinearBn1d,
}
"""What prepare_qat puts in the place of a float module with a qconfig."""

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
