"""Hard swish and hard sigmoid that an exporter wrote out become the operators of these names."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.passes.formulas import (
    gates,
    is_close,
    line_of,
    lines,
    number,
    only_reader,
    producer_of,
)
from onnxq.graph.passes.fused_node import FusedNode, fuse_all, inner_nodes
from onnxq.operator.nodes import find_input

OPSET = 14  # HardSwish's first
SLOPE, MIDDLE = 1 / 6, 1 / 2  # of HardSwish's gate
_ALPHA, _BETA = 0.2, 0.5  # HardSigmoid's defaults
_LOW, _HIGH = 1, 2  # slots of Clip


class FuseHardSwish(ir.passes.InPlacePass):
    """c x clip(a x + b, 0, h) = HardSwish(x) where c h = 1, a / h = 1 / 6 and b / h = 1 / 2.

    For clip(a x + b, 0, h) = h clip(a x / h + b / h, 0, 1), and HardSwish(x) =
    x clip(x / 6 + 1 / 2, 0, 1). By the same equation c clip(a x + b, 0, h) =
    HardSigmoid<alpha=a / h, beta=b / h>(x) where c h = 1, a > 0 and b > 0: the gate of a squeeze
    and excitation, which multiplies another tensor.

    The bounds are those of a Clip, of Min and Max, of Relu and Min, or a HardSigmoid's. All graphs,
    float32 only, and only where nothing else reads a value in between. The opset is raised to 14
    where it is lower.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fuses all that match."""
        return ir.passes.PassResult(model, fuse_all(model, _match, OPSET))


@dataclass(frozen=True, slots=True)
class _Bounded:
    """result = high * clip(slope * x + offset, 0, 1)."""

    result: ir.Value
    x: ir.Value
    slope: float
    offset: float
    high: float


def _match(node: ir.Node) -> FusedNode | None:
    bounded = _bounded(node)
    if bounded is None or bounded.x.dtype != ir.DataType.FLOAT:
        return None
    return _swish(bounded) or _sigmoid(bounded)


def _bounded(node: ir.Node) -> _Bounded | None:
    """The node as something between 0 and a positive bound."""
    if node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.op_type == "HardSigmoid":
        alpha = node.attributes.get_float("alpha", _ALPHA)
        beta = node.attributes.get_float("beta", _BETA)
        return _Bounded(node.outputs[0], node.inputs[0], alpha, beta, 1.0)
    x, low, high = _bounds(node)
    if x is None or low != 0 or not 0 < high < math.inf:
        return None
    return _Bounded(node.outputs[0], x, 1 / high, 0.0, high)


def _bounds(node: ir.Node) -> tuple[ir.Value | None, float, float]:
    """(x, low, high) of a node that clips, with the one ahead of it where it takes two."""
    x, low, high = _one_bound(node)
    ahead = producer_of(x)
    if x is None or ahead is None or only_reader(x) is not node or node.op_type == "Clip":
        return x, low, high
    first, lower, upper = _one_bound(ahead)
    return (first, max(low, lower), min(high, upper)) if first is not None else (x, low, high)


def _one_bound(node: ir.Node) -> tuple[ir.Value | None, float, float]:
    match node.op_type:
        case "Relu":
            return node.inputs[0], 0.0, math.inf
        case "Clip":
            low, high = (number(find_input(node, slot)) for slot in (_LOW, _HIGH))
            if low is not None and high is not None:
                return node.inputs[0], low, high
        case "Min" | "Max" if len(node.inputs) == 2:
            first, second = node.inputs
            bound, x = number(second, first), first
            if bound is None:
                bound, x = number(first, second), second
            if bound is not None:
                is_min = node.op_type == "Min"
                return x, *((-math.inf, bound) if is_min else (bound, math.inf))
    return None, 0.0, 0.0


def _swish(bounded: _Bounded) -> FusedNode | None:
    for gate in gates(bounded.x, bounded.result):
        if len(gate.argument) != 2 or gate.offset:
            continue
        middle, slope = (c * bounded.slope for c in gate.argument)
        middle += bounded.offset
        is_gate = is_close(middle, MIDDLE) and is_close(slope, SLOPE)
        if is_gate and is_close(gate.factor * bounded.high, 1.0):
            nodes = inner_nodes(gate.node, {gate.x})
            return None if nodes is None else FusedNode(nodes, "HardSwish", [gate.x], {})
    return None


def _sigmoid(bounded: _Bounded) -> FusedNode | None:
    last = bounded.result.producer()
    assert last is not None
    factor = bounded.high
    while not is_close(factor, 1.0):
        reader = only_reader(last.outputs[0])
        line = line_of(reader)
        if reader is None or line is None or line.offset:
            return None
        factor, last = factor * line.factor, reader
    fusion = None
    for line in lines(bounded.x):  # the longest one whose nodes nobody else reads
        alpha = line.factor * bounded.slope
        beta = line.offset * bounded.slope + bounded.offset
        nodes = inner_nodes(last, {line.x})
        if nodes is None:
            break
        if alpha > 0 and beta > 0 and len(nodes) > 1:
            fusion = FusedNode(nodes, "HardSigmoid", [line.x], {"alpha": alpha, "beta": beta})
    return fusion
