"""Axes that reductions run over."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.operator import Case, Float, NodeCall, OpCategory, Precision, Rule
from onnxq.operator.examples import ints, normal
from onnxq.operator.nodes import call_of, constant, has_input, shape
from onnxq.qparams import IntArray

NOT_KNOWN = Float.because("its axes, or the rank of its input, are not known before the model runs")


def axes_of_node(node: ir.Node) -> tuple[int, list[int]] | None:
    """(rank of x, `axes_of`) as far as the node alone tells; None: computed at run time."""
    sizes, given = shape(node, 0), constant(node, 1)
    if sizes is None or (has_input(node, 1) and given is None):
        return None
    axes = None if given is None else [int(axis) for axis in given.ravel()]
    return len(sizes), axes_of(call_of(node), len(sizes), axes)


def float_rule(node: ir.Node) -> Rule | Float:
    """The rule of a reduction in float32 between integers; its axes have to be known."""
    if axes_of_node(node) is None:
        return NOT_KNOWN
    return Rule(OpCategory.ELEMENTWISE, precision=Precision.FLOAT_BETWEEN_QDQ)


def summands(node: ir.Node) -> int | None:
    """How many elements of x a number of the result is made of; None: the node does not tell."""
    found, sizes = axes_of_node(node), shape(node, 0)
    if found is None or sizes is None:
        return None
    counts = [size for axis in found[1] if (size := sizes[axis]) is not None]
    return math.prod(counts) if len(counts) == len(found[1]) else None


def axes_of(call: NodeCall, rank: int, given: Sequence[int] | None) -> list[int]:
    """Axes that are reduced, ascending: those given by input or attribute, or all, or none."""
    axes = call.ints("axes", []) if given is None else given
    if not axes and call.integer("noop_with_empty_axes", 0):
        return []
    found = sorted({axis % rank for axis in axes if -rank <= axis < rank})
    if len(found) != len(axes):
        raise call.shape_error(f"axes {list(axes)} of a tensor of rank {rank}.")
    return found or list(range(rank))


def reduce_integers(call: NodeCall, x: IntArray, function: np.ufunc) -> IntArray:
    """np.maximum or np.minimum over the axes in slot 1 (opset 18) or the attribute (13)."""
    axes = axes_of(call, x.ndim, call.optional_vector(1))
    if not axes:
        return x.copy()
    keep = bool(call.integer("keepdims", 1))
    return np.asarray(function.reduce(x, axis=tuple(axes), keepdims=keep))


def cases() -> Iterable[Case]:
    """Axes given and not, kept and dropped, as an attribute; an empty batch."""
    x = normal(2, 3, 4)
    yield Case("axes", (x, ints(0, -1)), (1,))
    yield Case("all axes", (x,))
    yield Case("no axes left", (x, ints()), (1,), {"noop_with_empty_axes": 1})
    yield Case("axes dropped", (x, ints(1)), (1,), {"keepdims": 0})
    yield Case("attribute of opset 13", (x,), (), {"axes": [1]}, opset=13)
    yield Case("empty batch", (normal(0, 3), ints(1)), (1,))
