"""Guard of a rewrite: a plan may come from a file, and be of other nodes than the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import catalog
from onnxq.dynamic.check_decisions import sensitive
from onnxq.errors import nearest
from onnxq.graph.walk import node_name, tensor_names, walk
from onnxq.graph.weights import constant_array
from onnxq.operator.nodes import find_input
from onnxq.static.insertion.decision import Quantize, weight_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.static.plan import Plan


def check_plan(model: ir.Model, plan: Plan) -> None:
    """Passes a plan whose decisions are of the model's nodes, and whose numbers are all there.

    Args:
        model: the canonical float model; its hash is the plan's.
        plan: to carry out.
    Raises:
        CalibrationError: with the node.
    """
    nodes = {node_name(node): node for node, _ in walk(model.graph)}
    tensors = set(tensor_names(model))
    for name in plan.decisions.keys() ^ nodes.keys():
        where = "plan" if name in nodes else "model"
        raise sensitive(name, f"the {where} has no such node.{nearest(name, nodes)}")
    for name, decision in plan.decisions.items():
        if isinstance(decision, Quantize):
            _check_slots(nodes[name], decision)
            _check_numbers(nodes[name], decision, plan, tensors)


def _check_slots(node: ir.Node, decision: Quantize) -> None:
    """Guards against slots that the node does not have."""
    rule, name = decision.rule, node_name(node)
    if catalog.find(node.op_type, node.domain) is None:
        raise sensitive(name, f"onnxq has no integer form of {node.op_type}.")
    weights = [] if rule.weight is None else [rule.weight.slot]
    read = [*rule.activations, *weights]
    if len(set(read)) < len(read) or any(find_input(node, slot) is None for slot in read):
        raise sensitive(name, f"it has {len(node.inputs)} inputs; the plan reads {read}.")
    if rule.bias is not None and rule.bias in read:
        raise sensitive(name, f"its bias is input {rule.bias}, which is something else too.")
    for slot in weights:
        value = find_input(node, slot)
        if value is None or value.const_value is None:
            raise sensitive(name, f"its weight, input {slot}, is no constant.")
    outputs = rule.outputs
    if len(set(outputs)) < len(outputs) or not set(outputs) <= set(range(len(node.outputs))):
        raise sensitive(name, f"it has {len(node.outputs)} outputs; the plan writes {outputs}.")


def _check_numbers(node: ir.Node, decision: Quantize, plan: Plan, tensors: set[str]) -> None:
    """Guards against qparams that are missing."""
    rule, name = decision.rule, node_name(node)
    if decision.folded_into is not None:
        into = plan.decisions.get(decision.folded_into)
        if not isinstance(into, Quantize) or into.folded_into is not None:
            raise sensitive(
                name, f"it is folded into '{decision.folded_into}', which is not planned."
            )
        return
    if rule.weight is not None and name not in plan.weights:
        raise sensitive(name, "its weight has no entry in the plan.")
    kept = None if rule.weight is None else plan.weights[name].bias_preserving
    if kept is not None and kept.axes != rule.pair_axes:
        raise sensitive(
            name,
            f"its weight keeps sums over axes {kept.axes}; products run over {rule.pair_axes}.",
        )
    if kept is not None and kept.inputs is not None:
        sizes = constant_array(weight_of(node, rule)).shape
        if not kept.inputs.suits({axis: sizes[axis] for axis in kept.axes}):
            count = len(kept.inputs.means)
            raise sensitive(
                name, f"the plan has {count} means of its input's channels that fit none."
            )
    inputs = (find_input(node, slot) for slot in rule.activations)
    read = [str(value.name) for value in inputs if value is not None]
    for tensor in (*read, *decision.results):
        if tensor not in tensors:
            raise sensitive(name, f"the model has no tensor '{tensor}'.{nearest(tensor, tensors)}")
        if tensor not in plan.tensors:
            raise sensitive(name, f"tensor '{tensor}' has no scale in the plan.")
