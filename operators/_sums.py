"""What ReduceMean and ReduceSum share: which axes, and sums of what codes stand for."""

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
    """Sums of float32 without the noise of an order, rounded once; ONNX's keepdims."""
    keep = bool(integer(attributes, "keepdims", 1))
    total = x.sum(axis=tuple(axes), dtype=np.float64, keepdims=keep)
    return np.asarray(total, np.float32)


def count_over(shape: Sequence[int], axes: Sequence[int]) -> int:
    """Elements that each sum is of."""
    return math.prod(shape[axis] for axis in axes)
