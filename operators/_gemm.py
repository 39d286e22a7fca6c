"""Exact integer matrix products at the speed of float BLAS.

A float32 holds every integer up to 2^24. With |a| <= A and |b| <= B, sums of 2^24 / (A B) products
are exact in whatever order BLAS adds them; longer ones are cut into blocks that are added as int32,
which wraps modulo 2^32 as ONNX Runtime's accumulators do. (NumPy's own int32 product is 30 times
slower.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError
from onnxq.qparams import IntArray, PerTensor, QParams

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

EXACT_FLOAT32 = 1 << 24
EXACT_FLOAT64 = 1 << 53
MIN_BLOCK = 32  # shorter blocks cost more in additions than float64 costs in BLAS


def centred(q: IntArray, p: QParams) -> Floats:
    """Codes minus zero points as float32, exact for codes of up to 16 bits; shape of q."""
    if isinstance(p.granularity, PerTensor):
        return np.asarray(q.astype(np.float32) - np.float32(p.zero_point))
    axis = p.granularity.axis % q.ndim
    zero_point = p.zero_point.reshape([-1 if i == axis else 1 for i in range(q.ndim)])
    return np.asarray(q.astype(np.float32) - zero_point.astype(np.float32))


def integer_matmul(a: Floats, b: Floats) -> Ints:
    """The product a @ b of whole numbers in float32, exact modulo 2^32; shapes as np.matmul.

    Raises:
        ShapeError: the inner sizes differ, batches do not broadcast, or an operand has rank 0.
    """
    inner = _checked_inner(a, b)
    bound = int(np.abs(a).max(initial=0)) * int(np.abs(b).max(initial=0))
    block = EXACT_FLOAT32 // max(bound, 1)
    if block >= inner:
        return np.asarray(np.matmul(a, b)).astype(np.int32)
    if block < min(MIN_BLOCK, inner):
        block = EXACT_FLOAT64 // bound
        a, b = a.astype(np.float64), b.astype(np.float64)
    blocks = -(-inner // block)
    block = -(-inner // blocks)  # of equal size
    parts = (slice(k, k + block) for k in range(0, inner, block))
    total: Ints = np.zeros((), np.int32)
    for part in parts:
        product = np.asarray(np.matmul(a[..., part], b[part] if b.ndim == 1 else b[..., part, :]))
        total = total + product.astype(np.int64).astype(np.int32)
    return np.asarray(total)


def _checked_inner(a: Floats, b: Floats) -> int:
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
