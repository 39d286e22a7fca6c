"""Scales of QuantizeLinear and DequantizeLinear: what each covers, and those of float8."""

from collections.abc import Sequence
from typing import TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnxq.dtypes import INT8, QDType
from onnxq.errors import ShapeError
from onnxq.operator import Array, IntegerCall
from onnxq.qparams import Granularity, PerBlock, PerChannel, PerTensor, QParams

REALS = (np.dtype(np.float32), np.dtype(np.float16))

SMALL_FLOATS = tuple(
    np.dtype(dtype)
    for dtype in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float4_e2m1fn,
    )
)
"""Small floats that ONNX scales like integers, without zero point.

ONNX Runtime 1.31 has no kernel for float4_e2m1fn: that one follows the text of ONNX alone."""


def linear_qparams(
    call: IntegerCall,
    name: str,
    scale: Array,
    zero_point: Array | None,
    qdtype: QDType,
    shape: Sequence[int],
) -> QParams:
    """QParams whose granularity follows from the scale's shape, `axis` and `block_size`.

    Args:
        call: with `axis` and `block_size`.
        name: of the operand, for messages.
        scale: float32 or float16; one number, (shape[axis],), or ceil(shape / block_size) along
            axis and shape elsewhere.
        zero_point: of the operand's type and the scale's shape; None: 0.
        qdtype: of the operand.
        shape: of the operand.
    """
    if scale.dtype not in REALS:
        raise call.shape_error(f"{name}_scale has dtype {scale.dtype}; wanted float32 or float16.")
    zeros = call.zero_integers(name, scale, zero_point, qdtype)
    granularity = _granularity(call, name, scale, shape)
    if isinstance(granularity, PerTensor) and zeros.size == 1 and zeros.ndim <= 1:
        scale, zeros = scale.reshape(()), zeros.reshape(())
    if scale.shape != zeros.shape:
        raise call.shape_error(
            f"{name}_scale has shape {scale.shape}, {name}_zero_point "
            f"{zeros.shape}; they must be equal."
        )
    try:
        return QParams(scale.astype(np.float32), zeros, qdtype, granularity)
    except ShapeError as error:
        raise call.shape_error(f"{name}: {error}") from error


def _granularity(call: IntegerCall, name: str, scale: Array, shape: Sequence[int]) -> Granularity:
    """The part of a tensor that one scale covers."""
    size, rank = call.integer("block_size", 0), len(shape)
    if scale.size == 1 and scale.ndim <= 1 and size == 0:
        return PerTensor()  # ONNX Runtime does not look at axis then
    axis = call.integer("axis", 1)
    if not -rank <= axis < rank:
        raise call.shape_error(
            f"{name}_scale has shape {scale.shape}, but axis {axis} is outside a "
            f"tensor of rank {rank}."
        )
    axis %= rank
    wanted = tuple(shape[axis : axis + 1])
    if size:
        if size < 0:
            raise call.shape_error(f"block_size is {size}; wanted 0 for none, or more.")
        wanted = tuple(-(-n // size) if i == axis else n for i, n in enumerate(shape))
    if scale.shape != wanted:
        raise call.shape_error(
            f"{name}_scale has shape {scale.shape}; a tensor of shape {tuple(shape)} with axis "
            f"{axis} and block_size {size} wants {wanted}{'' if size else ' or one number'}."
        )
    return PerBlock(axis, size) if size else PerChannel(axis)


def small_float_scales(
    call: IntegerCall,
    name: str,
    scale: Array,
    zero_point: Array | None,
    dtype: np.dtype[np.generic],
    shape: Sequence[int],
) -> npt.NDArray[np.float32]:
    """The scales of a tensor of small floats, to broadcast; arguments as `linear_qparams`."""
    if zero_point is not None:
        if zero_point.dtype != dtype:
            raise call.shape_error(
                f"{name}_zero_point has dtype {zero_point.dtype}, but {name} is {dtype}."
            )
        if zero_point.astype(np.float32).any():
            raise call.shape_error(f"{name}_zero_point is not 0; {dtype} has no zero point.")
    qparams = linear_qparams(call, name, scale, None, INT8, shape)
    return spread(qparams.scale, qparams.granularity, shape)


Number = TypeVar("Number", bound=np.generic)


def spread(
    values: npt.NDArray[Number], granularity: Granularity, shape: Sequence[int]
) -> npt.NDArray[Number]:
    """Scales or zero points, shaped to broadcast with a tensor of that shape."""
    if isinstance(granularity, PerTensor):
        return values
    if isinstance(granularity, PerChannel):
        return values.reshape([-1 if i == granularity.axis else 1 for i in range(len(shape))])
    places = np.arange(shape[granularity.axis]) // granularity.size
    return values.take(places, axis=granularity.axis)
