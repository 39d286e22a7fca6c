"""The layers of a model: its nodes with a quantized weight that are known as products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Rule
from onnxq.operator.nodes import find_input
from onnxq.ort.matmul_add import biased_product
from onnxq.qparams import PerBlock
from onnxq.static.placing.decision import Quantize, weight_observer
from onnxq.weights.layer import BiasSlot, Layer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.static.placing.decision import Decision
    from onnxq.static.plan import Plan


def layers_of(model: ir.Model, plan: Plan) -> dict[str, Layer]:
    """Node name -> Layer, of nodes of the main graph, in its order."""
    found = {}
    for node in model.graph:
        layer = layer_of(node, plan)
        if layer is not None:
            found[layer.name] = layer
    return found


def layer_of(node: ir.Node, plan: Plan) -> Layer | None:
    """The Layer that a node is; None: it has no quantized weight, or no product is known of it."""
    decision, operator = plan.decisions[node_name(node)], catalog.find(node.op_type, node.domain)
    if not isinstance(decision, Quantize) or node_name(node) not in plan.weights:
        return None
    weight = plan.weights[node_name(node)]
    unfolded = None if operator is None else operator.unfolded(node)
    x = find_input(node, decision.rule.activations[0])
    if unfolded is None or x is None or x.is_initializer():
        return None
    if isinstance(weight.qparams.granularity, PerBlock):
        return None
    tensor = value_name(x)
    gain = np.array(plan.gains[tensor], np.float32) if tensor in plan.gains else None
    slot, y = bias_of(node, decision.rule, plan.decisions)
    return Layer(
        node,
        decision.rule,
        unfolded,
        tensor,
        value_name(y),
        weight,
        _span_of(node, decision.rule, plan),
        gain,
        slot,
        _clamp_of(y),
    )


def _span_of(node: ir.Node, rule: Rule, plan: Plan) -> tuple[int, int]:
    """Codes that the observer of a weight gives; those of its type, where none is known."""
    dtype = plan.weights[node_name(node)].qparams.dtype
    if plan.asked is None:
        return dtype.qmin, dtype.qmax
    observer = weight_observer(node, rule, plan.asked.mapping)()
    return max(dtype.qmin, observer.quant_min), min(dtype.qmax, observer.quant_max)


def bias_of(
    node: ir.Node, rule: Rule, decisions: Mapping[str, Decision]
) -> tuple[BiasSlot | None, ir.Value]:
    """(where the bias is or can be, the result that has it added)."""
    if rule.bias is not None:
        return BiasSlot(node, rule.bias), node.outputs[0]
    found = biased_product(node)
    behind = None if found is None else decisions[node_name(found.add)]
    on_codes = isinstance(behind, Quantize) and behind.folded_into != node_name(node)
    if found is not None and found.adds_vector and not on_codes:
        return BiasSlot(found.add, found.slot), found.add.outputs[0]
    return None, node.outputs[0]


def _clamp_of(y: ir.Value) -> tuple[float, float] | None:
    """Real bounds of the node that alone reads the value, where it bounds it and does no more."""
    if len(y.uses()) != 1 or y.is_graph_output():
        return None
    (reader,) = (use.node for use in y.uses())
    operator = catalog.find(reader.op_type, reader.domain)
    rule = None if operator is None else operator.rule(reader)
    return rule.clamp if isinstance(rule, Rule) else None
