"""The affine mapping between real numbers and integers: the only functions that round.

    quantize    q = saturate(rint(x / scale) + zero_point)       ONNX QuantizeLinear
    dequantize  x = (q - zero_point) * scale                     ONNX DequantizeLinear
    requantize  q = saturate(rint(acc * multiplier) + zero_point)

rint rounds halves to even, in float32, before the zero point is added, as ONNX Runtime does; the
ONNX text says "to nearest even" of x / scale. int32 is the exception: no runtime quantizes to it,
so it is computed in float64 and saturates. Arrays are worked on in chunks that fit a cache, so that
a weight mapped from disk costs its integers in memory and nothing else.
"""

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.dtypes import QDType
from onnxq.qparams import (
    FloatArray,
    Granularity,
    IntArray,
    PerChannel,
    PerTensor,
    QParams,
    check_shape,
)

_CHUNK = 1 << 17
"""Elements: 512 KiB of float32 stay in a core's cache between the five operations on them."""

Index = tuple[slice, ...]  # of leading axes


def _chunks(shape: tuple[int, ...]) -> Iterator[Index]:
    """Indices of parts of at most _CHUNK elements that cover an array of that shape, in order."""
    if math.prod(shape) <= _CHUNK:
        yield ()
        return
    row = math.prod(shape[1:])
    if row <= _CHUNK:
        step = _CHUNK // row
        yield from ((slice(i, i + step),) for i in range(0, shape[0], step))
        return
    rests = list(_chunks(shape[1:]))
    yield from ((slice(i, i + 1), *rest) for i in range(shape[0]) for rest in rests)


Numbers = TypeVar("Numbers", bound=np.integer | np.floating)


def _part(
    values: npt.NDArray[Numbers], granularity: Granularity, shape: tuple[int, ...], index: Index
) -> npt.NDArray[Numbers]:
    """The scales or zero points of x[index], shaped to broadcast with it; x.shape is `shape`."""
    if values.ndim == 0 or isinstance(granularity, PerTensor):
        return values
    rank = len(shape)
    axis = granularity.axis % rank
    along = index[axis] if axis < len(index) else slice(None)
    if isinstance(granularity, PerChannel):
        return values[along].reshape([-1 if i == axis else 1 for i in range(rank)])
    others = tuple(slice(None) if i == axis else part for i, part in enumerate(index))
    blocks = np.arange(shape[axis])[along] // granularity.size
    return values[others].take(blocks, axis=axis)


def _uniform(values: npt.NDArray[Numbers]) -> npt.NDArray[Numbers]:
    """One value in place of many equal ones: NumPy clips to a scalar twice as fast as to many."""
    if values.size and (values == values.flat[0]).all():
        return np.asarray(values.flat[0])
    return values


def _work_dtype(dtype: QDType) -> np.dtype[np.floating]:
    """Where integers, and differences of integers, are exact: float32 up to 16 bits, as in ORT."""
    return np.dtype(np.float32 if dtype.bits <= 16 else np.float64)


def quantize(x: FloatArray, p: QParams) -> IntArray:
    """Integers: saturate(rint(x / scale) + zero_point), NaN to qmin (as ONNX Runtime).

    Some kernels of ONNX Runtime 1.31 (float16; blocks along any but the last axis; odd elements
    below 8 bits) convert x / scale to int32 before they clamp: NaN, Inf and quotients beyond 2^31
    give an integer that depends on the CPU (x86: +Inf becomes 0). Here they saturate as elsewhere.

    Args:
        x: float16 or float32, any shape; computed in float32 (float64 for int32 integers).
        p: qparams whose granularity suits x's shape.
    Returns:
        p.dtype.storage, x's shape, C order.
    Raises:
        ShapeError: channels or blocks of x and p differ.
    """
    x = np.asarray(x)
    check_shape(x.shape, p)
    work = _work_dtype(p.dtype)
    zero_point = _uniform(p.zero_point)
    out = np.empty(x.shape, p.dtype.storage)
    for index in _chunks(x.shape):
        scale = _part(p.scale, p.granularity, x.shape, index).astype(work, copy=False)
        with np.errstate(all="ignore"):
            v = np.asarray(x[index].astype(work, copy=False) / scale)
        out[index] = _round_saturate(v, p.dtype, _part(zero_point, p.granularity, x.shape, index))
    return out


def _round_saturate(v: FloatArray, dtype: QDType, zero_point: IntArray) -> FloatArray:
    """saturate(rint(v) + zero_point) as whole floats, computed in v itself.

    Clamped before rounding, and rounded before the zero point is added: ties do not depend on it.
    """
    nan = np.isnan(v)
    if nan.any():
        np.copyto(v, -np.inf, where=nan)
    return _shift_saturate(v, dtype, zero_point)


def _shift_saturate(v: FloatArray, dtype: QDType, zero_point: IntArray) -> FloatArray:
    """Rounds and saturates, as `_round_saturate`, numbers without NaN."""
    zp = zero_point.astype(v.dtype)
    low, high = v.dtype.type(dtype.qmin) - zp, v.dtype.type(dtype.qmax) - zp
    np.clip(v, low, high, out=v)
    np.rint(v, out=v)
    return np.add(v, zp, out=v) if zp.any() else v


def dequantize(q: IntArray, p: QParams) -> npt.NDArray[np.float32]:
    """Real values: (q - zero_point) * scale, in float32.

    Args:
        q: integers of p.dtype, any shape.
        p: qparams whose granularity suits q's shape.
    Returns:
        float32, q's shape, C order; exact to half an ulp (int32 integers: q - zero_point is rounded
        to float32 first, as ONNX Runtime does). Its float16 result is this one cast to float16.
    Raises:
        ShapeError: channels or blocks of q and p differ.
    """
    q = np.asarray(q)
    check_shape(q.shape, p)
    zero_point = _uniform(p.zero_point)
    out = np.empty(q.shape, np.float32)
    for index in _chunks(q.shape):
        zp = _part(zero_point, p.granularity, q.shape, index)
        part = out[index] if index else out  # out[()] of rank 0 would be a copy
        if p.dtype.bits <= 16:
            part[...] = q[index]
            part -= zp.astype(np.float32)  # whole numbers below 2^17: exact
        else:
            part[...] = q[index].astype(np.int64) - zp.astype(np.int64)
        with np.errstate(over="ignore", under="ignore"):
            part *= _part(p.scale, p.granularity, q.shape, index)
    return out


def requantize(
    acc: npt.NDArray[np.int32], multiplier: npt.NDArray[np.float32] | np.float32, p: QParams
) -> IntArray:
    """Integers of an int32 accumulator: saturate(rint(float32(acc) * multiplier) + zero_point).

    Args:
        acc: int32, any shape; values beyond 2^24 are rounded to float32 first, as ONNX Runtime does
            (int32 integers: computed in float64).
        multiplier: float32, x_scale * w_scale / y_scale, rounded to float32 after each step; a
            shape that broadcasts with acc.
        p: qparams of the result, whose granularity suits acc's shape.
    Returns:
        p.dtype.storage, acc's shape.
    Raises:
        ShapeError: channels or blocks of acc and p differ.
    """
    acc = np.asarray(acc)
    check_shape(acc.shape, p)
    work = _work_dtype(p.dtype)
    factor = np.asarray(multiplier, np.float32).astype(work)
    finite = bool(np.isfinite(factor).all())
    factors = np.broadcast_to(factor, acc.shape) if factor.ndim else factor
    zero_point = _uniform(p.zero_point)
    out = np.empty(acc.shape, p.dtype.storage)
    with np.errstate(all="ignore"):
        for index in _chunks(acc.shape):
            v = np.asarray(acc[index].astype(work))
            v *= factors[index] if factor.ndim else factor
            zp = _part(zero_point, p.granularity, acc.shape, index)
            if not finite:
                np.copyto(v, -np.inf, where=np.isnan(v))  # 0 * inf: NaN becomes qmin
            out[index] = _shift_saturate(v, p.dtype, zp)
    return out


def fake_quantize(x: FloatArray, p: QParams) -> npt.NDArray[np.float32]:
    """dequantize(quantize(x)): what is left of x after a round trip, float32, same shape."""
    return dequantize(quantize(x, p), p)


def integer_bounds(clamp: tuple[float, float], p: QParams) -> tuple[int, int]:
    """Integers of the ends of a clamp: quantize(clip(x)) = clip(quantize(x)).

    Args:
        clamp: lowest and largest real value; may be infinite.
        p: per tensor.
    """
    low, high = quantize(np.array(clamp, np.float32), p)
    return int(low), int(high)
