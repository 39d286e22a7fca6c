"""Which module takes the place of which: {type of a float or trained module: quantized type}."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from onnxq.pytorch.modules.float_functional import FloatFunctional
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub
from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn import quantized as nnq
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.nn.intrinsic import quantized as nniq
from onnxq.pytorch.nn.quantized import dynamic
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, LearnableFakeQuantize

if TYPE_CHECKING:
    from collections.abc import Mapping

STATIC_MAPPING: Mapping[type[nn.Module], type[nn.Module]] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    FakeQuantize: nnq.Requantize,
    LearnableFakeQuantize: nnq.Requantize,
    FloatFunctional: nnq.QFunctional,
    nn.Conv1d: nnq.Conv1d,
    nn.Conv2d: nnq.Conv2d,
    nn.Conv3d: nnq.Conv3d,
    nn.ConvTranspose1d: nnq.ConvTranspose1d,
    nn.ConvTranspose2d: nnq.ConvTranspose2d,
    nn.ConvTranspose3d: nnq.ConvTranspose3d,
    nn.Linear: nnq.Linear,
    nn.ReLU: nnq.ReLU,
    nn.ReLU6: nnq.ReLU6,
    nn.ELU: nnq.ELU,
    nn.Hardswish: nnq.Hardswish,
    nn.LeakyReLU: nnq.LeakyReLU,
    nn.Sigmoid: nnq.Sigmoid,
    nn.Softmax: nnq.Softmax,
    nn.MaxPool2d: nnq.MaxPool2d,
    nn.BatchNorm2d: nnq.BatchNorm2d,
    nn.BatchNorm3d: nnq.BatchNorm3d,
    nn.LayerNorm: nnq.LayerNorm,
    nn.GroupNorm: nnq.GroupNorm,
    nn.InstanceNorm1d: nnq.InstanceNorm1d,
    nn.InstanceNorm2d: nnq.InstanceNorm2d,
    nn.InstanceNorm3d: nnq.InstanceNorm3d,
    nn.Embedding: nnq.Embedding,
    nn.EmbeddingBag: nnq.EmbeddingBag,
    intrinsic.BNReLU2d: nniq.BNReLU2d,
    intrinsic.BNReLU3d: nniq.BNReLU3d,
    qat.Embedding: nnq.Embedding,
    intrinsic.ConvReLU1d: nniq.ConvReLU1d,
    intrinsic.ConvReLU2d: nniq.ConvReLU2d,
    intrinsic.ConvReLU3d: nniq.ConvReLU3d,
    intrinsic.ConvTransposeReLU1d: nniq.ConvTransposeReLU1d,
    intrinsic.ConvTransposeReLU2d: nniq.ConvTransposeReLU2d,
    intrinsic.ConvTransposeReLU3d: nniq.ConvTransposeReLU3d,
    intrinsic.LinearReLU: nniq.LinearReLU,
    qat.Conv1d: nnq.Conv1d,
    qat.Conv2d: nnq.Conv2d,
    qat.Conv3d: nnq.Conv3d,
    qat.ConvTranspose1d: nnq.ConvTranspose1d,
    qat.ConvTranspose2d: nnq.ConvTranspose2d,
    qat.ConvTranspose3d: nnq.ConvTranspose3d,
    qat.Linear: nnq.Linear,
    fused.ConvBn1d: nnq.Conv1d,
    fused.ConvBn2d: nnq.Conv2d,
    fused.ConvBn3d: nnq.Conv3d,
    fused.LinearBn1d: nnq.Linear,
    fused.ConvReLU1d: nniq.ConvReLU1d,
    fused.ConvReLU2d: nniq.ConvReLU2d,
    fused.ConvReLU3d: nniq.ConvReLU3d,
    fused.ConvBnReLU1d: nniq.ConvReLU1d,
    fused.ConvBnReLU2d: nniq.ConvReLU2d,
    fused.ConvBnReLU3d: nniq.ConvReLU3d,
    fused.ConvTransposeBn1d: nnq.ConvTranspose1d,
    fused.ConvTransposeBn2d: nnq.ConvTranspose2d,
    fused.ConvTransposeBn3d: nnq.ConvTranspose3d,
    fused.ConvTransposeReLU1d: nniq.ConvTransposeReLU1d,
    fused.ConvTransposeReLU2d: nniq.ConvTransposeReLU2d,
    fused.ConvTransposeReLU3d: nniq.ConvTransposeReLU3d,
    fused.ConvTransposeBnReLU1d: nniq.ConvTransposeReLU1d,
    fused.ConvTransposeBnReLU2d: nniq.ConvTransposeReLU2d,
    fused.ConvTransposeBnReLU3d: nniq.ConvTransposeReLU3d,
    fused.LinearReLU: nniq.LinearReLU,
}
"""For modules whose activations have been observed or trained."""


DYNAMIC_MAPPING: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Linear: dynamic.Linear,
    nn.LSTM: dynamic.LSTM,
    nn.GRU: dynamic.GRU,
    nn.RNN: dynamic.RNN,
    nn.LSTMCell: dynamic.LSTMCell,
    nn.GRUCell: dynamic.GRUCell,
    nn.RNNCell: dynamic.RNNCell,
}
"""For modules whose qconfig is a QConfigDynamic: nothing needs to be observed."""


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
