"""Reductions over constant axes, and the means that they are parts of."""

import math
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.passes.formulas import is_close, line_of, number, producer_of
from onnxq.graph.weights import constant
from onnxq.operator.nodes import has_input

_TWO = 2.0


@dataclass(frozen=True, slots=True)
class Reduced:
    """Something of x, such as its mean, over axes that stay as 1; axes count from 0, in order."""

    x: ir.Value
    axes: tuple[int, ...]


def axes_of(node: ir.Node) -> tuple[int, ...] | None:
    """Constant axes of a reduction, from 0, in order; None: none given, computed, unknown rank.

    Input 1 since opset 18 (ReduceSum: 13), an attribute before.
    """
    x = node.inputs[0]
    if x is None or x.shape is None:
        return None
    rank = len(x.shape)
    if has_input(node, 1):
        tensor = constant(node.inputs[1])
        given = [] if tensor is None else [int(a) for a in tensor.numpy().reshape(-1)]
    else:
        given = list(node.attributes.get_ints("axes", []))
    if not given or not all(-rank <= axis < rank for axis in given):
        return None
    return tuple(sorted(axis % rank for axis in given))


def reduced_by(op_type: str, value: ir.Value | None) -> Reduced | None:
    """The reduction by that operator that the value is, over constant axes that stay."""
    node = producer_of(value)
    if node is None or node.op_type != op_type or not node.attributes.get_int("keepdims", 1):
        return None
    x, axes = node.inputs[0], axes_of(node)
    return None if x is None or axes is None else Reduced(x, axes)


def mean_of(value: ir.Value | None) -> Reduced | None:
    """The mean that the value is: a ReduceMean, or a ReduceSum over the count of its terms."""
    return reduced_by("ReduceMean", value) or _mean_of_sum(value, "ReduceSum")


def mean_of_squares(value: ir.Value | None) -> Reduced | None:
    """The mean of x * x that the value is, the square being a Mul, a Pow, or ReduceSumSquare."""
    if (direct := _mean_of_sum(value, "ReduceSumSquare")) is not None:
        return direct
    mean = mean_of(value)
    x = None if mean is None else squared(mean.x)
    return None if mean is None or x is None else Reduced(x, mean.axes)


def squared(value: ir.Value) -> ir.Value | None:
    """X where the value is x * x, or the product of two equal differences; else None."""
    node = producer_of(value)
    if node is None or node.op_type not in ("Mul", "Pow"):
        return None
    first, second = node.inputs
    if node.op_type == "Pow":
        return first if number(second, first) == _TWO else None
    is_square = first is second or _is_same_difference(first, second)
    return first if is_square else None


def _is_same_difference(first: ir.Value | None, second: ir.Value | None) -> bool:
    a, b = producer_of(first), producer_of(second)
    if a is None or b is None or a.op_type != "Sub" or b.op_type != "Sub":
        return False
    return tuple(a.inputs) == tuple(b.inputs)


def _mean_of_sum(value: ir.Value | None, op_type: str) -> Reduced | None:
    """1 / count * sum, the count being known."""
    line = line_of(producer_of(value))
    summed = None if line is None or line.offset else reduced_by(op_type, line.x)
    if line is None or summed is None or summed.x.shape is None:
        return None
    sizes = [summed.x.shape[axis] for axis in summed.axes]
    known = [size for size in sizes if isinstance(size, int)]
    is_mean = len(known) == len(sizes) and is_close(line.factor * math.prod(known), 1.0)
    return summed if is_mean else None
