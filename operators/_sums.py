"""What ReduceMean and ReduceSum share: which axes, and sums in ONNX Runtime's order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError
from onnxq.operator import Array, AttributeValue, Float
from onnxq.operators._attributes import Attributes, integer, integers
from onnxq.operators._nodes import constant, has_input, shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

Reals = npt.NDArray[np.float32]

VECTOR = 4  # of float32: SSE, which ONNX Runtime is compiled for
BLOCK = 4  # rows that MLAS multiplies at once

NOT_KNOWN = Float("its axes, or the rank of its input, are not known before the model runs")


def axes_of_node(node: ir.Node) -> tuple[int, list[int]] | None:
    """(rank of x, `axes_of`) as far as the node alone tells; None: computed at run time."""
    sizes, given = shape(node, 0), constant(node, 1)
    if sizes is None or (has_input(node, 1) and given is None):
        return None
    attributes: dict[str, AttributeValue] = {
        "axes": node.attributes.get_ints("axes", []),
        "noop_with_empty_axes": node.attributes.get_int("noop_with_empty_axes", 0),
    }
    return len(sizes), axes_of(node.op_type, len(sizes), given, attributes)


def axes_of(op: str, rank: int, given: Array | None, attributes: Attributes) -> list[int]:
    """Axes that are reduced, ascending: those given by input or attribute, or all, or none.

    Raises:
        ShapeError: an axis out of range, or twice.
    """
    axes = integers(attributes, "axes", []) if given is None else [int(a) for a in given.ravel()]
    if not axes and integer(attributes, "noop_with_empty_axes", 0):
        return []
    found = sorted({axis % rank for axis in axes if -rank <= axis < rank})
    if len(found) != len(axes):
        raise ShapeError(f"{op}: axes {axes} of a tensor of rank {rank}.")
    return found or list(range(rank))


def sum_over(x: Reals, axes: Sequence[int], attributes: Attributes) -> Reals:
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
        ordered = x.transpose([*axes, *kept])
        total = _one_by_one(ordered.reshape(count_over(x.shape, axes), -1), 0)
    keep = bool(integer(attributes, "keepdims", 1))
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


def _one_by_one(x: Reals, axis: int) -> Reals:
    """Sums along an axis in order; np.sum may add in pairs."""
    if x.shape[axis] == 0:
        return np.asarray(x.sum(axis=axis))
    return np.asarray(np.add.accumulate(x, axis).take(-1, axis))


def _vector_sums(x: Reals) -> Reals:
    """Sums along the last axis as Eigen has them with vectors of 4 that start at aligned places."""
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    size = rows.shape[1]
    total = np.zeros(len(rows), np.float32)
    period = VECTOR // math.gcd(VECTOR, size)  # rows apart that are aligned alike
    for first in range(min(period, len(rows))):
        head = min(-first * size % VECTOR, size)
        total[first::period] = _aligned_sums(rows[first::period], head)
    return total.reshape(x.shape[:-1])


def _aligned_sums(x: Reals, head: int) -> Reals:
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


def _product_sums(x: Reals) -> Reals:
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
