"""Sums in float32 in ONNX Runtime's order, for ReduceMean and ReduceSum."""

import math
from collections.abc import Sequence

import numpy as np

from onnxq.operator import NodeCall, Singles

VECTOR = 4  # of float32: SSE, which ONNX Runtime is compiled for
BLOCK = 4  # rows that MLAS multiplies at once


def sum_over(call: NodeCall, x: Singles, axes: Sequence[int]) -> Singles:
    """Sums in float32, in the order in which ONNX Runtime adds on x86; ONNX's keepdims.

    The order depends on how kept (K) and reduced (R) axes alternate, neighbours of a kind taken as
    one: vectors of 4 where the last axis is reduced, the rows of a matrix product where it is kept
    between, one by one else.
    """
    sizes, kinds = _runs(x.shape, axes)
    rows = x.reshape(sizes)
    if kinds in ("R", "KR"):
        total = _vector_sums(rows)
    elif kinds == "KRK":
        total = _product_sums(rows)
    elif kinds == "RKR":
        total = _one_by_one(_vector_sums(rows), 0)
    else:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        counts = [count_over(x.shape, which) for which in (axes, kept)]
        total = _one_by_one(x.transpose([*axes, *kept]).reshape(counts), 0)
    keep = bool(call.integer("keepdims", 1))
    kept_shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    return total.reshape(kept_shape)


def _runs(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], str]:
    """(sizes, kinds) with neighbouring axes of a kind as one, as ONNX Runtime groups them."""
    sizes: list[int] = []
    kinds = ""
    for i, size in enumerate(shape):
        kind = "R" if i in axes else "K"
        if kinds.endswith(kind):
            sizes[-1] *= size
        else:
            sizes.append(size)
            kinds += kind
    if kinds == "KRK" and sizes[0] == 1:
        return sizes[1:], "RK"
    if kinds == "RKR" and sizes[1] == 1:
        return sizes, ""  # one by one
    return sizes, kinds


def _one_by_one(x: Singles, axis: int) -> Singles:
    """Sums along an axis in order; np.sum may add in pairs."""
    if x.shape[axis] == 0:
        return np.asarray(x.sum(axis=axis))
    return np.asarray(np.add.accumulate(x, axis).take(-1, axis))


def _vector_sums(x: Singles) -> Singles:
    """Sums along the last axis as Eigen has them with vectors of 4 that start at aligned places."""
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    size = rows.shape[1]
    total = np.zeros(len(rows), np.float32)
    period = VECTOR // math.gcd(VECTOR, size)  # rows apart that are aligned alike
    for first in range(min(period, len(rows))):
        head = min(-first * size % VECTOR, size)
        total[first::period] = _aligned_sums(rows[first::period], head)
    return total.reshape(x.shape[:-1])


def _aligned_sums(x: Singles, head: int) -> Singles:
    """Sums of rows whose element `head` is the first that is aligned."""
    size = x.shape[1]
    vectors = (size - head) // VECTOR
    tail = head + vectors * VECTOR
    if vectors == 0:
        return _one_by_one(x, 1)
    parts = x[:, head:tail].reshape(len(x), vectors, VECTOR)
    lanes = _one_by_one(parts[:, 0 : vectors - vectors % 2 or 1 : 2], 1)
    if vectors > 1:
        lanes = lanes + _one_by_one(parts[:, 1::2], 1)
        if vectors % 2:
            lanes = lanes + parts[:, -1]
    total = (lanes[:, 0] + lanes[:, 2]) + (lanes[:, 1] + lanes[:, 3])
    outside = np.concatenate([total[:, None], x[:, :head], x[:, tail:]], axis=1)
    return _one_by_one(outside, 1)


def _product_sums(x: Singles) -> Singles:
    """Sums along the middle axis as MLAS multiplies a row of ones with a matrix: 4, 2 or 1 rows."""
    count = x.shape[1]
    whole = count - count % BLOCK
    fours = x[:, :whole].reshape(x.shape[0], whole // BLOCK, BLOCK, x.shape[2])
    parts = [((fours[:, :, 0] + fours[:, :, 1]) + fours[:, :, 2]) + fours[:, :, 3]]
    if count - whole >= 2:
        parts.append(x[:, whole : whole + 1] + x[:, whole + 1 : whole + 2])
    if count % 2:
        parts.append(x[:, -1:])
    return _one_by_one(np.concatenate(parts, axis=1), 1)


def count_over(shape: Sequence[int], axes: Sequence[int]) -> int:
    """Elements that each sum is of."""
    return math.prod(shape[axis] for axis in axes)
