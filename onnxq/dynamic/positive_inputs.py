"""Tensors whose numbers have a mean above 0, as activations leave them: the graph alone tells it.

What a product of such an input adds up is off by the mean times the sum of its weight's rounding
errors. There errors are rounded so that they cancel (targets.bias_preserving).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.walk import walk
from onnxq.operator.nodes import constant, find_input

_ACTIVATIONS = frozenset(
    [
        "Abs",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "QuickGelu",
        "Relu",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "Swish",
    ]
)
_GATES = ("HardSigmoid", "Sigmoid", "Softmax")
_JOINS = ("Add", "Concat", "Max", "Sum")
_SCALES = ("Add", "Div", "Mul")
_POOLS = (
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "MaxPool",
    "ReduceMean",
    "Resize",
)


def positive_values(model: ir.Model) -> frozenset[ir.Value]:
    """Results of nodes whose channels have means of one sign, whatever the model is given."""
    found: set[ir.Value] = set()
    for node, _ in walk(model.graph):
        if _is_positive(node, found):
            found.update(node.outputs)
    return frozenset(found)


def _is_positive(node: ir.Node, known: set[ir.Value]) -> bool:
    if node.op_type in _ACTIVATIONS:
        return True
    if node.op_type == "Clip":
        low = constant(node, 1)
        return low is not None and float(low.min(initial=0.0)) >= 0
    x, y = (find_input(node, slot) for slot in (0, 1))
    if node.op_type in _SCALES and any(_is_scaled(node, slot, known) for slot in (0, 1)):
        return True
    if node.op_type == "Mul":
        return _is_gated(x, y, known) or _is_gated(y, x, known)
    if node.op_type in _JOINS:
        return all(each in known for each in node.inputs)
    return x in known and (node.op_type in _POOLS or catalog.moves_data(node))


def _is_scaled(node: ir.Node, slot: int, known: set[ir.Value]) -> bool:
    """Whether all of it is scaled or shifted alike, or by numbers above 0."""
    beside = constant(node, 1 - slot)
    is_alike = beside is not None and (
        beside.size == 1 or bool((np.asarray(beside, np.float64) > 0).all())
    )
    return is_alike and find_input(node, slot) in known


def _is_gated(x: ir.Value | None, gate: ir.Value | None, known: set[ir.Value]) -> bool:
    """Whether it is x times a share of it: of an x above 0, or x * sigmoid(x)."""
    source = None if gate is None else gate.producer()
    if source is None or source.op_type not in _GATES:
        return False
    return x in known or x is source.inputs[0]
