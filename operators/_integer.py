"""Reads the inputs of operators on codes: arrays become QParams, and refusals name the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from onnxq import dtypes
from onnxq.dtypes import INT32
from onnxq.errors import ShapeError
from onnxq.qparams import PerChannel, PerTensor, QParams, sum_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.dtypes import QDType
    from onnxq.operator import Array
    from onnxq.qparams import IntArray

QDTYPES: dict[np.dtype[np.generic], QDType] = {
    np.dtype(dtype): qdtype
    for dtype, qdtype in (
        (np.uint8, dtypes.UINT8),
        (np.int8, dtypes.INT8),
        (np.uint16, dtypes.UINT16),
        (np.int16, dtypes.INT16),
        (np.int32, dtypes.INT32),
        (ml_dtypes.uint4, dtypes.UINT4),
        (ml_dtypes.int4, dtypes.INT4),
        (ml_dtypes.uint2, dtypes.UINT2),
        (ml_dtypes.int2, dtypes.INT2),
    )
}
"""dtype of a tensor of that ONNX type -> QDType. onnx hands over types below 8 bits as arrays of
ml_dtypes, one code per element; kernels take and return these, and compute in QDType.storage."""


def stored(x: Array) -> IntArray:
    """The codes in their QDType's storage: int4 of ml_dtypes becomes int8; others as they are."""
    return np.asarray(x, QDTYPES[x.dtype].storage)


def as_tensor(q: IntArray, dtype: np.dtype[np.generic]) -> Array:
    """Codes in their QDType's storage as the array that onnx has for them; undoes `stored`."""
    return np.asarray(q, dtype)


def operand(op: str, inputs: Sequence[Array | None], slot: int, name: str) -> Array:
    """The array in a slot.

    Raises:
        ShapeError: absent.
    """
    x = inputs[slot] if slot < len(inputs) else None
    if x is None:
        raise ShapeError(f"{op}: input {slot}, {name}, is absent; it is needed.")
    return np.asarray(x)


def optional(inputs: Sequence[Array | None], slot: int) -> Array | None:
    """The array in a slot, or None."""
    x = inputs[slot] if slot < len(inputs) else None
    return None if x is None else np.asarray(x)  # a Python number has the wrong type, in words


def qdtype_of(op: str, x: Array, name: str, allowed: Sequence[str] = ("uint8", "int8")) -> QDType:
    """The QDType of codes.

    Raises:
        ShapeError: a dtype that the operator does not take.
    """
    if x.dtype.name not in allowed:
        raise ShapeError(f"{op}: {name} has dtype {x.dtype}; wanted {' or '.join(allowed)}.")
    return QDTYPES[x.dtype]


def qparams(
    op: str,
    name: str,
    inputs: Sequence[Array | None],
    slot: int,
    qdtype: QDType,
    axis: int | None = None,
) -> QParams:
    """QParams of one operand, from its scale in `slot` and its zero point in the next one.

    Args:
        op: for messages.
        name: of the operand, for messages.
        inputs: of the node. The scale is float32 of shape (), (1,), or with an axis (channels,);
            the zero point is of the operand's type, one number or as many as scales; absent: 0.
        slot: of the scale.
        qdtype: of the operand.
        axis: of the channels; None: only per-tensor is allowed.
    Raises:
        ShapeError: dtypes or sizes do not fit, or the scale is not positive and finite.
    """
    return make_qparams(
        op,
        name,
        operand(op, inputs, slot, f"{name}_scale"),
        optional(inputs, slot + 1),
        qdtype,
        axis,
    )


def make_qparams(
    op: str,
    name: str,
    scale: Array,
    zero_point: Array | None,
    qdtype: QDType,
    axis: int | None = None,
) -> QParams:
    """As `qparams`, where scale and zero point do not follow one another.

    Raises:
        ShapeError: as `qparams`.
    """
    if scale.dtype != np.float32:
        raise ShapeError(f"{op}: {name}_scale has dtype {scale.dtype}; wanted float32.")
    zeros = zero_codes(op, name, scale, zero_point, qdtype)
    per_tensor = scale.size == 1 and scale.ndim <= 1 and zeros.size == 1
    if not per_tensor and (axis is None or scale.ndim != 1 or zeros.size not in (1, scale.size)):
        wanted = "one number" if axis is None else "one number, or one per channel"
        raise ShapeError(
            f"{op}: {name}_scale has shape {scale.shape}, {name}_zero_point {zeros.shape}; "
            f"wanted {wanted}."
        )
    scales = scale.reshape(()).astype(np.float32) if per_tensor else scale.astype(np.float32)
    points = np.broadcast_to(zeros.reshape(-1), scales.shape or 1).reshape(scales.shape)
    granularity = PerTensor() if per_tensor else PerChannel(axis or 0)
    try:
        return QParams(scales, points.astype(qdtype.storage), qdtype, granularity)
    except ShapeError as error:
        raise ShapeError(f"{op}: {name}: {error}") from error


def zero_codes(
    op: str, name: str, scale: Array, zero_point: Array | None, qdtype: QDType
) -> IntArray:
    """The zero point in the type's storage; 0 in the scale's shape where it is absent.

    Raises:
        ShapeError: it is not of the operand's type.
    """
    if zero_point is None:
        return np.zeros(scale.shape, qdtype.storage)
    if QDTYPES.get(zero_point.dtype) != qdtype:
        raise ShapeError(
            f"{op}: {name}_zero_point has dtype {zero_point.dtype}, but {name} is {qdtype}."
        )
    return stored(zero_point)


def output_qparams(op: str, name: str, inputs: Sequence[Array | None], slot: int) -> QParams:
    """Per-tensor QParams of a result, whose zero point says its type; absent: uint8.

    Raises:
        ShapeError: as `qparams`.
    """
    zero_point = optional(inputs, slot + 1)
    zeros = np.zeros((), np.uint8) if zero_point is None else np.asarray(zero_point)
    return qparams(op, name, inputs, slot, qdtype_of(op, zeros, f"{name}_zero_point"))


def bias_qparams(op: str, bias: Array, x: QParams, w: QParams) -> QParams:
    """int32 at x_scale * w_scale, zero point 0.

    Raises:
        ShapeError: the bias is not int32.
    """
    if bias.dtype != np.int32:
        raise ShapeError(f"{op}: the bias has dtype {bias.dtype}; wanted int32.")
    scale = sum_scale(x, w)
    axis = PerChannel(bias.ndim - 1) if scale.ndim else PerTensor()
    return QParams(scale, np.zeros(scale.shape, np.int32), INT32, axis)
