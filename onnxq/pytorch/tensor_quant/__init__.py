"""Quantization as NVIDIA's pytorch_quantization.tensor_quant documents it: qparams from amax.

quantizer = TensorQuantizer(QuantDescriptor(num_bits=8, axis=0))     # a module
integers, scale = tensor_quant(x, amax)                                 # a function, with gradient
QConfig(activation=QuantDescriptor(unsigned=True), weight=QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL)
"""

from onnxq.pytorch.tensor_quant import descriptor, functions
from onnxq.pytorch.tensor_quant.calibrators import HistogramCalibrator as HistogramCalibrator
from onnxq.pytorch.tensor_quant.calibrators import MaxCalibrator as MaxCalibrator
from onnxq.pytorch.tensor_quant.descriptor import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.tensor_quant.descriptor import QuantTypeError as QuantTypeError
from onnxq.pytorch.tensor_quant.descriptor import QuantValueError as QuantValueError
from onnxq.pytorch.tensor_quant.functions import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.tensor_quant.quantizer import Clip as Clip
from onnxq.pytorch.tensor_quant.quantizer import TensorQuantizer as TensorQuantizer

__all__ = sorted(
    [
        *descriptor.__all__,  # type: ignore[attr-defined]  # computed
        *functions.__all__,
        "Clip",
        "HistogramCalibrator",
        "MaxCalibrator",
        "QuantTypeError",
        "QuantValueError",
        "TensorQuantizer",
    ]
)
