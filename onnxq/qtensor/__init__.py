"""Quantized tensors: integers together with the qparams that say what they mean. NumPy only.

    y = quantize_per_tensor(x, scale=0.05, zero_point=0, dtype=qint8)
    y.int_repr()        the integers: saturate(rint(x / scale) + zero_point), as ONNX defines them
    y.dequantize()      (integers - zero_point) * scale
    save(y, "y.npz")    a quarter of the float size
    to_onnx(y, "y")     an initializer with its DequantizeLinear

The names and the behaviour are those that PyTorch documents for its quantized tensors; dtypes are
onnxq's, wider and narrower ones included. Arithmetic (add, cat, convolutions) is in
`onnxq.functional`, where each function is an operator's kernel.
"""

from onnxq.dtypes import qint8, qint32, quint8
from onnxq.qparams import (
    QScheme,
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from onnxq.qtensor.compared import Ordered
from onnxq.qtensor.conversion import from_ir, from_onnx, to_ir, to_onnx
from onnxq.qtensor.creation import (
    _empty_affine_quantized,
    _empty_per_channel_affine_quantized,
    load,
    quantize_linear,
    quantize_per_channel,
    quantize_per_tensor,
    save,
)
from onnxq.qtensor.tensor import QTensor

__all__ = [
    "Ordered",
    "QScheme",
    "QTensor",
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
    "from_ir",
    "from_onnx",
    "load",
    "per_channel_affine",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qint8",
    "qint32",
    "quantize_linear",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quint8",
    "save",
    "to_ir",
    "to_onnx",
]
