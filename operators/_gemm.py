"""Exact integer matrix products at the speed of float BLAS.

A float32 holds every integer up to 2^24. With |a| <= A and |b| <= B, sums of 2^24 / (A B) products
are exact in whatever order BLAS adds them; longer ones are cut into blocks that are added as int32,
which wraps modulo 2^32 as ONNX Runtime's accumulators do. (NumPy's own int32 product is 30 times
slower.)
"""

import numpy as np

from onnxq.core.threads import in_parallel, shares, worker_count
from onnxq.dtypes import QDType
from onnxq.errors import ShapeError
from onnxq.operator import Ints, Singles
from onnxq.qparams import IntArray, PerTensor, QParams

EXACT_FLOAT32 = 1 << 24
EXACT_FLOAT64 = 1 << 53
MIN_BLOCK = 32  # shorter blocks cost more in additions than float64 costs in BLAS
MIN_SHARED = 1 << 14  # elements; fewer are multiplied before a thread starts


def centred(q: IntArray, p: QParams) -> Singles:
    """Integers minus zero points as float32, exact for integers of up to 16 bits; shape of q."""
    values = q.astype(np.float32)
    if not p.zero_point.any():  # weights, as a rule
        return values
    if isinstance(p.granularity, PerTensor):
        values -= np.float32(p.zero_point)
        return values
    axis = p.granularity.axis % q.ndim
    zero_point = p.zero_point.reshape([-1 if i == axis else 1 for i in range(q.ndim)])
    values -= zero_point.astype(np.float32)
    return values


def max_abs(p: QParams) -> int:
    """The largest |q - zero_point|; 0 without channels."""
    if not p.zero_point.size:
        return 0
    return max(p.dtype.qmax - int(p.zero_point.min()), int(p.zero_point.max()) - p.dtype.qmin)


def origin(p: QParams, other: int, inner: int) -> int:
    """Number to subtract from integers of p, so that their products with others are small.

    The zero point, where `inner` products with numbers up to `other` add up exactly in float32.
    Else the middle of the type, 128 of uint8 or 0 of int8: |q - 128| <= 2^7 lets blocks of a
    long sum be up to twice as long; the zero point comes in once, with the sum of the others.
    """
    if max_abs(p) * other * inner <= EXACT_FLOAT32:
        return int(p.zero_point)
    return 0 if p.dtype.signed else 1 << (p.dtype.bits - 1)


def shifted(q: IntArray, shift: int) -> Singles:
    """Integers minus a shift, q - shift, as float32; shape of q."""
    values = q.astype(np.float32)
    if shift:
        values -= np.float32(shift)
    return values


def furthest(dtype: QDType, shift: int) -> int:
    """The largest |q - shift|."""
    return max(dtype.qmax - shift, shift - dtype.qmin)


def matmul_int32(a: IntArray, a_qparams: QParams, b: Singles, b_bound: int) -> Ints:
    """(a - a_zp) @ b, exact modulo 2^32; shapes as np.matmul.

    (a - a_zp) @ b = (a - shift) @ b - (a_zp - shift) * (sum of b's rows), shift: see `origin`.

    Args:
        a: integers.
        a_qparams: of a, per-tensor.
        b: whole numbers, zero points subtracted.
        b_bound: a bound on |b|.
    Raises:
        ShapeError: as `integer_matmul`.
    """
    _checked_inner(a, b)
    inner = b.shape[-min(b.ndim, 2)]
    shift = origin(a_qparams, b_bound, inner)
    left = shifted(a, shift)
    rows = left.shape[:-1]
    if b.ndim == 2 and left.ndim > 2:  # one matmul, not one per batch
        left = left.reshape(-1, inner)
    total = integer_matmul(left, b, furthest(a_qparams.dtype, shift) * b_bound)
    offset = np.int32(int(a_qparams.zero_point) - shift)
    if offset:
        moved = integer_matmul(np.ones(inner, np.float32), b, b_bound) * offset
        total = total - (moved[..., None, :] if b.ndim > 2 and left.ndim > 1 else moved)
    return np.asarray(total.reshape(*rows, b.shape[-1]) if b.ndim == 2 else total)


def integer_matmul(a: Singles, b: Singles, largest: int | None = None) -> Ints:
    """The matrix product a @ b in float32 of whole numbers, exact modulo 2^32; shapes as np.matmul.

    Args:
        a: whole numbers.
        b: whole numbers.
        largest: a bound on |a| |b|, where one is known without looking at every element.
    Raises:
        ShapeError: the inner sizes differ, batches do not broadcast, or an operand has rank 0.
    """
    _checked_inner(a, b)
    bound = largest_absolute(a) * largest_absolute(b) if largest is None else largest
    small = min(a.size, b.size) < MIN_SHARED or max(a.ndim, b.ndim) == 1
    if worker_count() == 1 or small:
        return _matmul(a, b, bound)
    rows = a.shape[-2] if a.ndim > 1 else 1
    if b.ndim == 1 or rows > b.shape[-1]:
        parts = in_parallel(lambda part: _matmul(a[..., part, :], b, bound), shares(rows))
        return np.concatenate(parts, axis=-1 if b.ndim == 1 else -2)
    parts = in_parallel(lambda part: _matmul(a, b[..., part], bound), shares(b.shape[-1]))
    return np.concatenate(parts, axis=-1)


def _matmul(a: Singles, b: Singles, bound: int) -> Ints:
    """`integer_matmul` in one thread; `bound`: on |a| |b|."""
    inner = a.shape[-1]
    block = EXACT_FLOAT32 // max(bound, 1)
    if block >= inner:
        return np.asarray(np.matmul(a, b)).astype(np.int32)
    whole: type[np.int64 | np.int32] = np.int32
    if block < min(MIN_BLOCK, inner):
        block, whole = EXACT_FLOAT64 // bound, np.int64  # which wraps when it becomes int32
        a, b = a.astype(np.float64), b.astype(np.float64)
    blocks = -(-inner // block)
    block = -(-inner // blocks)  # of equal size
    total: Ints | None = None
    for k in range(0, inner, block):
        part = slice(k, k + block)
        sums = np.asarray(np.matmul(a[..., part], b[part] if b.ndim == 1 else b[..., part, :]))
        rounded = sums.astype(whole).astype(np.int32, copy=False)
        place = total if isinstance(total, np.ndarray) else None  # a sum of rank 0 has none
        total = rounded if total is None else np.add(total, rounded, out=place)
    return np.asarray(total)


def largest_absolute(x: Singles | Ints) -> int:
    """The largest |x|; two reductions, for |x| would be another array."""
    return max(int(x.max(initial=0)), -int(x.min(initial=0)))


def _checked_inner(a: Singles | IntArray, b: Singles) -> int:
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(
            f"matrix product of shapes {a.shape} and {b.shape}: rank 0 has no columns."
        )
    inner: int = a.shape[-1]
    if inner != b.shape[-min(b.ndim, 2)]:
        raise ShapeError(
            f"matrix product of shapes {a.shape} and {b.shape}: "
            f"{inner} columns meet {b.shape[-min(b.ndim, 2)]} rows."
        )
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError as error:
        raise ShapeError(f"matrix product of shapes {a.shape} and {b.shape}: {error}") from error
    return inner
