"""The torch dtypes that hold integers, and the types of onnxq that they stand for."""

import numpy as np
import torch

from onnxq import dtypes
from onnxq.dtypes import QDType, find, qint8, qint32, quint8
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.qtensor import QTensor

_TORCH = {
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.uint16): torch.uint16,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
}


def torch_dtype(dtype: QDType) -> torch.dtype:
    """The torch dtype that holds the integers of a type, one element per integer."""
    try:
        return _TORCH[np.dtype(dtype.storage)]
    except KeyError:
        known = ", ".join(str(t).removeprefix("torch.") for t in _TORCH.values())
        raise UnsupportedError(
            f"dtype {dtype} has no torch type for its integers; wanted one stored as {known}."
        ) from None


def qdtype_of(dtype: torch.dtype | QDType | str) -> QDType:
    """The type that torch.uint8, torch.quint8, "quint8" or the type itself names."""
    return dtypes.find(str(dtype) if isinstance(dtype, torch.dtype) else dtype)


# --- Tensors that torch quantized as QTensors, and back.
#
#     q = from_torch(torch.quantize_per_tensor(x, 0.1, 128, torch.quint8))
#     t = to_torch(q)
#
# torch keeps scales as float64, ONNX and a QTensor as float32: a scale is rounded once, integers
# stay.

_ONE_SCALE = (torch.per_tensor_affine, torch.per_tensor_symmetric)
_SCALE_PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_symmetric)
_DTYPES = (quint8, qint8, qint32)


def from_torch(tensor: torch.Tensor) -> QTensor:
    """The integers and qparams of a tensor that torch quantized."""
    if not tensor.is_quantized:
        raise ShapeError(
            f"a tensor of {tensor.dtype}; wanted a QTensor, or one quantized by torch. Quantize "
            "it with quantize_per_tensor or quantize_per_channel of onnxq.qtensor or torch."
        )
    scheme, dtype = tensor.qscheme(), find(str(tensor.dtype))
    integers = tensor.int_repr().cpu().numpy()
    if scheme in _ONE_SCALE:
        scale = np.asarray(tensor.q_scale(), np.float32)
        return QTensor(integers, QParams(scale, np.asarray(tensor.q_zero_point()), dtype))
    if scheme not in _SCALE_PER_CHANNEL:
        raise UnsupportedError(
            f"a tensor quantized by {scheme}, whose zero points are floats; wanted whole ones. "
            "Quantize its dequantize() with torch.quantize_per_channel."
        )
    scales = tensor.q_per_channel_scales().cpu().numpy().astype(np.float32)
    zero_points = tensor.q_per_channel_zero_points().cpu().numpy()
    axis = PerChannel(tensor.q_per_channel_axis())
    return QTensor(integers, QParams(scales, zero_points, dtype, axis))


def to_torch(tensor: QTensor) -> torch.Tensor:
    """The tensor as torch quantizes: quint8, qint8 or qint32, on the CPU."""
    qparams = tensor.qparams
    granularity = qparams.granularity
    if qparams.dtype not in _DTYPES or not isinstance(granularity, PerTensor | PerChannel):
        raise UnsupportedError(
            f"a QTensor of {qparams.dtype} quantized with {granularity}; torch has "
            f"{', '.join(map(str, _DTYPES))}, per tensor or "
            "per channel. Quantize its dequantize() so."
        )
    integers = torch.from_numpy(tensor.int_repr().copy())
    if isinstance(granularity, PerTensor):
        numbers = float(qparams.scale), int(qparams.zero_point)
        one: torch.Tensor = torch._make_per_tensor_quantized_tensor(integers, *numbers)  # noqa: SLF001  # torch's only way from integers
        return one
    scales = torch.from_numpy(qparams.scale.astype(np.float64))
    zero_points = torch.from_numpy(qparams.zero_point.astype(np.int64))
    made: torch.Tensor = torch._make_per_channel_quantized_tensor(  # noqa: SLF001  # likewise
        integers, scales, zero_points, granularity.axis
    )
    return made
