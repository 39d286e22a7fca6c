"""Quantization as NVIDIA's pytorch_quantization.tensor_quant documents it: qparams from amax.

quantizer = TensorQuantizer(QuantDescriptor(num_bits=8, axis=0))     # a module
integers, scale = tensor_quant(x, amax)                                 # a function, with gradient
QConfig(activation=QuantDescriptor(unsigned=True), weight=QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL)
"""

from __future__ import annotations

from onnxq.pytorch.tensor_quant.calibrators import HistogramCalibrator, MaxCalibrator
from onnxq.pytorch.tensor_quant.descriptor import (
    QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL,
    QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL,
    QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL,
    QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL,
    QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL,
    QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL,
    QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW,
    QUANT_DESC_8BIT_PER_TENSOR,
    QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR,
    QuantDescriptor,
    ScaledQuantDescriptor,
)
from onnxq.pytorch.tensor_quant.descriptor_arguments import QuantTypeError, QuantValueError
from onnxq.pytorch.tensor_quant.functions import (
    FakeAffineTensorQuantFunction,
    FakeTensorQuantFunction,
    LegacyFakeTensorQuantFunction,
    ScaledE4M3Function,
    TensorQuantFunction,
    fake_affine_tensor_quant,
    fake_tensor_quant,
    legacy_fake_tensor_quant,
    scaled_e4m3,
    tensor_quant,
)
from onnxq.pytorch.tensor_quant.learned_bounds import Clip
from onnxq.pytorch.tensor_quant.quantizer import TensorQuantizer

__all__ = [
    "QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW",
    "QUANT_DESC_8BIT_PER_TENSOR",
    "QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR",
    "Clip",
    "FakeAffineTensorQuantFunction",
    "FakeTensorQuantFunction",
    "HistogramCalibrator",
    "LegacyFakeTensorQuantFunction",
    "MaxCalibrator",
    "QuantDescriptor",
    "QuantTypeError",
    "QuantValueError",
    "ScaledE4M3Function",
    "ScaledQuantDescriptor",
    "TensorQuantFunction",
    "TensorQuantizer",
    "fake_affine_tensor_quant",
    "fake_tensor_quant",
    "legacy_fake_tensor_quant",
    "scaled_e4m3",
    "tensor_quant",
]
