"""Formulas that nodes of arithmetic spell out, read backwards from a result or forwards to one.

What an exporter writes of one function differs in the order of factors, in x / 6 or x * (1 / 6), in
x * x * x or Pow(x, 3). So numbers are multiplied out here, and a function is known by the line, the
polynomial and the bounds that are left.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.edit import sole_reader
from onnxq.graph.weights import constant

TOLERANCE = 4e-6
"""Largest relative difference of two constants that count as one: 100 dB are 1e-5 of an amplitude,
and exporters write the root of 2 with 6 digits."""
_HIGHEST_POWER = 3
_DEEPEST = 8  # nodes on a path through a polynomial; one of degree 3 has 6

Polynomial = tuple[float, ...]
"""Coefficients, that of x ** 0 first."""


def is_close(got: float, wanted: float) -> bool:
    """Whether two constants are one, but for an exporter's rounding."""
    return math.isclose(got, wanted, rel_tol=TOLERANCE)


def number(value: ir.Value | None, beside: ir.Value | None = None) -> float | None:
    """The one float32 number of a constant; None: it is none, or adds axes to what is beside it."""
    tensor = constant(value)
    if tensor is None or tensor.size != 1 or tensor.dtype != ir.DataType.FLOAT:
        return None
    rank = len(tensor.shape)
    if rank and beside is not None and (beside.shape is None or rank > len(beside.shape)):
        return None
    return float(tensor.numpy().item())


def producer_of(value: ir.Value | None) -> ir.Node | None:
    """The node of ai.onnx that computes the value, its first output; else None."""
    node = value.producer() if value is not None else None
    return node if node is not None and not node.domain and node.outputs[0] is value else None


def only_reader(value: ir.Value) -> ir.Node | None:
    """The one node of ai.onnx, in the same graph, that reads the value, once; else None."""
    reader = sole_reader(value)
    if reader is None or reader.domain or reader.graph is not value.graph:
        return None
    return reader


@dataclass(frozen=True, slots=True)
class Line:
    """factor * x + offset."""

    x: ir.Value
    factor: float = 1.0
    offset: float = 0.0


def line_of(node: ir.Node | None) -> Line | None:
    """The line that one node computes of its operand that is no number: x + 3, 1 - x, x / 6, -x."""
    if node is None or node.domain:
        return None
    if node.op_type == "Neg" and node.inputs[0] is not None:
        return Line(node.inputs[0], -1.0)
    if node.op_type not in ("Add", "Sub", "Mul", "Div"):
        return None
    first, second = node.inputs
    if first is None or second is None:
        return None
    right, left = number(second, first), number(first, second)
    match node.op_type:
        case "Add" if right is not None or left is not None:
            return Line(first, 1.0, right) if right is not None else Line(second, 1.0, left or 0.0)
        case "Mul" if right is not None or left is not None:
            return Line(first, right) if right is not None else Line(second, left or 0.0)
        case "Sub" if right is not None:
            return Line(first, 1.0, -right)
        case "Sub" if left is not None:
            return Line(second, -1.0, left)
        case "Div" if right:
            return Line(first, 1 / right)
    return None


def lines(value: ir.Value) -> Iterator[Line]:
    """The lines that the value is, each of a value further up: first of itself, 1 * value + 0."""
    factor, offset = 1.0, 0.0
    yield Line(value)
    while (line := line_of(producer_of(value))) is not None:
        value, factor, offset = line.x, factor * line.factor, offset + factor * line.offset
        yield Line(value, factor, offset)


def polynomial(value: ir.Value, x: ir.Value) -> Polynomial | None:
    """The polynomial in x that the value is, of degree 1 to 3; None: it is none."""
    found = _polynomial(value, x, {x: (0.0, 1.0)}, _DEEPEST)
    return found if found is not None and len(found) > 1 else None


def _polynomial(
    value: ir.Value | None, x: ir.Value, known: dict[ir.Value, Polynomial | None], deepest: int
) -> Polynomial | None:
    if value is None or not deepest:
        return None
    if value not in known:
        known[value] = _computed(value, x, known, deepest)
    return known[value]


def _computed(
    value: ir.Value, x: ir.Value, known: dict[ir.Value, Polynomial | None], deepest: int
) -> Polynomial | None:
    single = number(value, x)
    if single is not None:
        return (single,)
    node = producer_of(value)
    if node is None or node.op_type not in ("Add", "Sub", "Mul", "Div", "Neg", "Pow"):
        return None
    terms = [_polynomial(one, x, known, deepest - 1) for one in node.inputs]
    first, second = (terms[0], terms[-1])
    if first is None or second is None:
        return None
    match node.op_type:
        case "Add":
            return _sum(first, second)
        case "Sub":
            return _sum(first, tuple(-c for c in second))
        case "Neg":
            return _product((-1.0,), first)
        case "Mul":
            return _product(first, second)
        case "Div" if len(second) == 1 and second[0]:
            return _product(first, (1 / second[0],))
        case "Pow" if second in ((2.0,), (3.0,)):
            square = _product(first, first)
            return square if second == (2.0,) or square is None else _product(square, first)
    return None


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    size = max(len(a), len(b))
    padded = [[*one, *[0.0] * (size - len(one))] for one in (a, b)]
    return tuple(first + second for first, second in zip(*padded, strict=True))


def _product(a: Polynomial, b: Polynomial) -> Polynomial | None:
    if len(a) + len(b) - 2 > _HIGHEST_POWER:
        return None
    result = [0.0] * (len(a) + len(b) - 1)
    for i, first in enumerate(a):
        for j, second in enumerate(b):
            result[i + j] += first * second
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Gate:
    """y = x * (factor * f(argument(x)) + offset), f being some function of one tensor.

    Attributes:
        node: that computes y.
        x: what is gated.
        argument: polynomial in x.
        factor: by which f is multiplied, every number ahead of and behind the product included.
        offset: that is added to it.
    """

    node: ir.Node
    x: ir.Value
    argument: Polynomial
    factor: float
    offset: float


def gates(argument: ir.Value, function: ir.Value) -> Iterator[Gate]:
    """The gated products behind a function's result, from the first one on to all numbers of it."""
    value, factor, offset = function, 1.0, 0.0
    while (node := only_reader(value)) is not None and (line := line_of(node)) is not None:
        factor, offset = factor * line.factor, offset * line.factor + line.offset
        value = node.outputs[0]
    if node is None or node.op_type != "Mul":
        return
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    gated = None if other is None else _gated(other, argument)
    if gated is None:
        return
    line, inside = gated
    factor, offset = factor * line.factor, offset * line.factor
    yield Gate(node, line.x, inside, factor, offset)
    while (node := only_reader(node.outputs[0])) is not None:
        behind = line_of(node)
        if behind is None or behind.offset:
            return
        factor, offset = factor * behind.factor, offset * behind.factor
        yield Gate(node, line.x, inside, factor, offset)


def _gated(operand: ir.Value, argument: ir.Value) -> tuple[Line, Polynomial] | None:
    """(operand as a multiple of x, argument as a polynomial in x), for the nearest such x."""
    for line in lines(operand):
        if line.offset:
            return None
        found = polynomial(argument, line.x)
        if found is not None:
            return line, found
    return None
