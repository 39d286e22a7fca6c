"""Guard of a dynamic rewrite: decisions may come from a file, and be of other nodes."""

from collections.abc import Mapping

import onnx_ir as ir

from onnxq import catalog
from onnxq.dynamic.dynamic_decision import DynamicWeightPlan, QuantizeDynamic
from onnxq.errors import CalibrationError, nearest
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Float
from onnxq.operator.nodes import find_input


def check_decisions(model: ir.Model, decisions: Mapping[str, QuantizeDynamic]) -> None:
    """Passes decisions on nodes of the model that their operators can carry out."""
    nodes = {node_name(node): node for node, _ in walk(model.graph)}
    for name, decision in decisions.items():
        if name not in nodes:
            raise does_not_fit(name, f"the model has no such node.{nearest(name, nodes)}")
        node = nodes[name]
        operator = catalog.find(node.op_type, node.domain)
        rule = None if operator is None else operator.dynamic_rule(node)
        if rule is None or isinstance(rule, Float):
            raise does_not_fit(name, f"{node.op_type} has no weights that could be stored.")
        if decision.precision not in rule.precisions:
            raise does_not_fit(name, f"it has no precision '{decision.precision.value}'.")
        wanted = [w.slot for w in rule.weights if find_input(node, w.slot) is not None]
        got = [weight.slot for weight in decision.weights]
        if got != wanted:
            raise does_not_fit(name, f"its weights are inputs {wanted}; the plan has {got}.")
        for weight in decision.weights:
            _check_weight(node, weight)


def _check_weight(node: ir.Node, weight: DynamicWeightPlan) -> None:
    name, value = node_name(node), find_input(node, weight.slot)
    if value is None or value.name != weight.tensor or value.const_value is None:
        raise does_not_fit(
            name, f"its weight '{weight.tensor}' is not constant input {weight.slot}."
        )
    rank = len(value.const_value.shape)
    if weight.perm is not None and sorted(weight.perm) != list(range(rank)):
        raise does_not_fit(
            name, f"{weight.perm} is no order of the {rank} axes of '{weight.tensor}'."
        )
    kept, shape = weight.bias_preserving, tuple(value.const_value.shape.numpy())
    if kept is not None and not kept.suits(shape):
        raise does_not_fit(name, "its weight has other channels than those whose sums it keeps.")


def does_not_fit(name: str, why: str) -> CalibrationError:
    """The error of a plan whose decision on a node does not fit the model."""
    return CalibrationError(
        f"the plan does not fit the model: node '{name}': {why} Make the plan anew from this model."
    )
