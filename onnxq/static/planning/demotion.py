"""Demotions to float: nodes whose tensors the data left without numbers, or with sensitive ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import catalog
from onnxq.graph.walk import attribute_values, node_name, value_name, walk
from onnxq.operator import Call, Float, NodePlan, OperatorLimit
from onnxq.operator.nodes import input_at
from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.core.reason import Reason
    from onnxq.qparams import QParams
    from onnxq.static.insertion.decision import Decision
    from onnxq.static.prepared import Prepared


def demoted(
    prepared: Prepared, unseen: Mapping[str, Reason], tensors: Mapping[str, QParams]
) -> dict[str, Decision]:
    """The decisions; nodes with a tensor that has no qparams, or sensitive ones, are in float.

    Returns:
        node name -> decision; nodes that were folded into a float one are float with its reason.
    """
    decisions: dict[str, Decision] = {}
    for node, _ in walk(prepared.model.graph):
        name = node_name(node)
        decision = prepared.decisions[name]
        if isinstance(decision, Quantize):
            read = [value_name(input_at(node, slot)) for slot in decision.rule.activations]
            missing = [unseen[t] for t in (*read, *decision.results) if t in unseen]
            reason = missing[0] if missing else _misfit(node, decision, tensors)
            if reason:
                decision = Float(reason)
        decisions[name] = decision
    for name, decision in decisions.items():
        if isinstance(decision, Quantize) and decision.folded_into:
            into = decisions[decision.folded_into]
            if isinstance(into, Float):
                decisions[name] = into
    return decisions


def _misfit(
    node: ir.Node, decision: Quantize, tensors: Mapping[str, QParams]
) -> OperatorLimit | None:
    """Why ONNX Runtime does not run the node with these qparams, or None."""
    operator = catalog.find(node.op_type, node.domain)
    rule = decision.rule
    if operator is None or decision.folded_into or len(decision.results) < len(rule.outputs):
        return None
    inputs = {slot: tensors[value_name(input_at(node, slot))] for slot in rule.activations}
    outputs = dict(zip(rule.outputs, (tensors[t] for t in decision.results), strict=True))
    plan = NodePlan(
        tuple(inputs.get(slot) for slot in range(len(node.inputs))),
        tuple(outputs.get(slot) for slot in range(len(node.outputs))),
    )
    said = operator.misfit(Call(node.op_type, (), plan, attributes=attribute_values(node)))
    return OperatorLimit(said) if said else None
