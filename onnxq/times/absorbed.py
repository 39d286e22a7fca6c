"""Nodes that ONNX Runtime computes inside of the one ahead of them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxq.operator import Precision
from onnxq.operator.nodes import is_constant
from onnxq.ort import facts
from onnxq.ort.layouts import ADDED_BY_CONV, CONVOLUTION, FUSED_BEHIND_CONV, GATE
from onnxq.targets.speedups import LINEAR_OPS

PrecisionOf = Callable[[ir.Node], Precision | None]
"""Precision of a node; None: the node ahead computes it too."""


def is_absorbed(node: ir.Node, precision: Precision, precision_of: PrecisionOf) -> bool:
    """Whether ONNX Runtime computes the node inside of the one ahead of it."""
    sources = [v.producer() for v in node.inputs if v is not None]
    ahead = [
        source
        for source in sources
        if source is not None
        and _gives(precision_of(source)) is precision
        and len(source.outputs[0].uses()) == 1
        and not source.outputs[0].is_graph_output()
    ]
    if not ahead:
        return False
    if precision is Precision.FLOAT and is_gate_of_itself(node):
        return True
    if precision is Precision.INT8 and facts.of(node).swallowed:
        return True
    if precision is Precision.FLOAT and any(source.op_type == CONVOLUTION for source in ahead):
        return node.op_type in FUSED_BEHIND_CONV or (
            node.op_type in ADDED_BY_CONV and len(sources) == 2 and None not in sources
        )
    return (
        node.op_type in ADDED_BY_CONV
        and ahead[0].op_type in LINEAR_OPS
        and any(is_constant(node, slot) for slot in range(len(node.inputs)))
    )


def _gives(precision: Precision | None) -> Precision | None:
    """Precision of a node that goes on with this one's numbers: integers, or floats."""
    return Precision.FLOAT if precision is Precision.INT8_FLOAT_OUTPUT else precision


def is_gate_of_itself(node: ir.Node) -> bool:
    """Whether it is x * Sigmoid(x), which ONNX Runtime computes as one node."""
    if node.op_type != GATE[0]:
        return False
    first, second = node.inputs
    for x, gate in ((first, second), (second, first)):
        source = None if gate is None else gate.producer()
        if source is not None and source.op_type == GATE[1] and source.inputs[0] is x:
            return True
    return False
