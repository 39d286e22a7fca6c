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
from onnxq.operator.carried_errors import carried_errors

if TYPE_CHECKING:
    import onnx_ir as ir

LOGARITHM = "Log"


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
        for step in carried_errors(operator, node):
            if not step.is_followed(products):
                continue
            count = products + step.products
            if step.products:
                found[node] = log
            if step.value not in read or count < read[step.value][1]:
                read[step.value] = (log, count)
    return found
