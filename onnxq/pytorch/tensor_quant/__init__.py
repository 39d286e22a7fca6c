"""Quantization as NVIDIA's pytorch_quantization.tensor_quant documents it: a grid said by amax.

quantizer = TensorQuantizer(QuantDescriptor(num_bits=8, axis=0))     # a module
codes, scale = tensor_quant(x, amax)                                 # a function, with gradient
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
from onnxq.pytorch.tensor_quant.functions import (
    FakeTensorQuantFunction,
    TensorQuantFunction,
    fake_tensor_quant,
    tensor_quant,
)
from onnxq.pytorch.tensor_quant.learned_bounds import Clip
from onnxq.pytorch.tensor_quant.quant_errors import QuantTypeError, QuantValueError
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
    "FakeTensorQuantFunction",
    "HistogramCalibrator",
    "MaxCalibrator",
    "QuantDescriptor",
    "QuantTypeError",
    "QuantValueError",
    "ScaledQuantDescriptor",
    "TensorQuantFunction",
    "TensorQuantizer",
    "fake_tensor_quant",
    "tensor_quant",
]
