"""Products whose results a logarithm reads: a short-time Fourier transform, a filter bank.

    x -> Conv or MatMul -> squares, sums, roots, moves, bounds -> MatMul -> Log

A logarithm takes quiet parts for as much as loud ones, and what codes lose is a share of the loud
ones. How far they lie apart, only samples tell: with nothing known, such products stay in float.
With samples, onnxq.static.noise.error_paths predicts what is left.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from onnxq import catalog
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Curve, Linear, Role, Rule, Weighted
from onnxq.operator.nodes import find_input, is_constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from onnxq.operator import Operator

LOGARITHM = "Log"
MOST_PRODUCTS = 2
"""Products on one way to a logarithm that stay in float: a filter bank, the transform before it."""


def ahead_of_logs(model: ir.Model) -> dict[ir.Node, str]:
    """Product with a constant -> name of a logarithm that reads sums, powers or moves of it.

    One sweep against the graph's order, by the way with the fewest products. Nodes of loops and
    branches are not looked at.

    Args:
        model: canonical.
    """
    found: dict[ir.Node, str] = {}
    read: dict[ir.Value, tuple[str, int]] = {}  # value -> the logarithm, products on the way
    for node, loop in reversed(list(walk(model.graph))):
        if loop is not None:
            continue
        if node.op_type == LOGARITHM and node.inputs[0] is not None:
            read[node.inputs[0]] = (node_name(node), 0)
            continue
        operator = catalog.find(node.op_type, node.domain)
        behind = [read[value] for value in node.outputs if value in read]
        if operator is None or not behind:
            continue
        log, products = min(behind, key=itemgetter(1))
        for slot, is_product in _carried(node, operator, products):
            count, value = products + is_product, find_input(node, slot)
            if value is None or count > MOST_PRODUCTS:
                continue
            if is_product:
                found[node] = log
            if value not in read or count < read[value][1]:
                read[value] = (log, count)
    return found


def _carried(node: ir.Node, operator: Operator, products: int) -> Iterator[tuple[int, bool]]:
    """(slot whose errors come out, whether as a product with a constant), as far as is known."""
    for response in operator.responses(node):
        match response:
            case Linear(slots=slots):
                yield from ((slot, False) for slot in slots if not is_constant(node, slot))
            case Curve(slot=slot, exponent=exponent) if exponent is not None:
                yield slot, False
            case Weighted(slot=slot):
                yield slot, True
    rule = operator.rule(node)
    if not isinstance(rule, Rule):
        return
    # ahead of a product, a Relu lets through an unknown part of an error
    if rule.role is Role.MOVEMENT or (rule.role is Role.CLAMP and not products):
        yield from ((slot, False) for slot in rule.activations if not is_constant(node, slot))
    if rule.weight is not None and is_constant(node, rule.weight.slot):
        yield rule.activations[0], True
