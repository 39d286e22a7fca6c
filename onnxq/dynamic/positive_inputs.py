"""Tensors whose numbers have a mean above 0, as activations leave them: the graph alone tells it.

A layer's sums over such an input are off by the mean times the sum of its weight's rounding
errors. There errors are rounded so that they cancel (targets.bias_preserving).
"""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.walk import walk
from onnxq.operator import Factored, Linear, OpCategory, Operator, Summed
from onnxq.operator.nodes import constant, find_input


def positive_values(model: ir.Model) -> frozenset[ir.Value]:
    """Results of nodes whose channels have means of one sign, whatever the model is given."""
    found: set[ir.Value] = set()
    for node, _ in walk(model.graph):
        operator = catalog.find(node.op_type, node.domain)
        if operator is not None and (
            operator.gives_positive(node) or _keeps_positive(operator, node, found)
        ):
            found.update(node.outputs)
    return frozenset(found)


def _keeps_positive(operator: Operator, node: ir.Node, known: Collection[ir.Value]) -> bool:
    """Whether what a node adds up, multiplies or moves has one sign, or is beside its own gate."""
    slots = _slots(operator, node)
    if not any(find_input(node, slot) in known for slot in slots):
        return False
    gates: list[ir.Value | None] = []
    is_product = any(isinstance(each, Factored) for each in operator.responses(node))
    if is_product:
        gates += [node.inputs[slot] for slot in slots if node.inputs[slot] in known]
    own = [x.producer() for x in gates if x is not None]  # x * sigmoid(x)
    beside = {gate.inputs[0] for gate in own if gate is not None}
    least = -np.inf if is_product else 0.0
    return all(_is_of_one_sign(node, slot, {*known, *beside}, least) for slot in slots)


def _slots(operator: Operator, node: ir.Node) -> Collection[int]:
    """Inputs whose numbers come out with their signs; none: they may change them."""
    if operator.gives_means:
        return (0,)
    rule = catalog.rule_of(node)
    if rule is not None and rule.category is OpCategory.MOVEMENT:
        return rule.activations
    keeping = [
        isinstance(each, Summed | Factored) or (isinstance(each, Linear) and each.sign > 0)
        for each in operator.responses(node)
    ]
    return range(len(node.inputs)) if keeping and all(keeping) else ()


def _is_of_one_sign(
    node: ir.Node, slot: int, known: Collection[ir.Value | None], least: float
) -> bool:
    """Whether an input has one sign, is a constant above 0, one number from `least` on, or none."""
    numbers = constant(node, slot)
    if numbers is not None:
        reals = np.asarray(numbers, np.float64)
        return bool((reals > 0).all()) or (reals.size == 1 and bool((reals >= least).all()))
    value = find_input(node, slot)
    return value is None or value in known
