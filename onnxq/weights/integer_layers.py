"""Layers in integers, static and dynamic: how their operands are rounded."""

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnxq import catalog
from onnxq.affine import fake_quantize
from onnxq.core.arrays import Singles
from onnxq.dynamic.dynamic_decision import Objective, QuantizeDynamic
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.dynamic_weights import StorageKey, observe_stored
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers import MinMaxObserver, ObserverSpec
from onnxq.observers.weight_observation import observe_weight
from onnxq.operator import DynamicRule, Precision
from onnxq.operator.nodes import input_at
from onnxq.qconfig import QConfigDynamic
from onnxq.qparams import PerTensor
from onnxq.static.insertion.decision import Quantize
from onnxq.static.planning.constants import weight_key
from onnxq.static.prepared import Prepared
from onnxq.weights.layers import bias_of


@dataclass(frozen=True, slots=True, eq=False)
class IntegerLayer:
    """A node whose kernel multiplies integers by integers of a constant weight.

    Attributes:
        rounded: a weight of its shape as its integers would have it.
        observer: of its input; None: each run takes the range of what it sees.
        has_bias: whether there is a bias that `bias` and `round` correct, or one can be added.
    """

    node: ir.Node
    slot: int
    rounded: Callable[[Singles], Singles]
    observer: ObserverSpec | None
    has_bias: bool


def integer_layers(
    prepared: Prepared, objective: Objective = Objective.SPEED
) -> dict[str, IntegerLayer]:
    """Node name -> layer, in the order in which they run."""
    dynamic = _dynamic(prepared, objective)
    found = {}
    for node, _ in walk(prepared.model.graph):
        name, decision = node_name(node), prepared.decisions[node_name(node)]
        made = None
        if isinstance(decision, Quantize):
            made = _static_layer(node, decision, prepared)
        elif name in dynamic:
            made = _dynamic_layer(node, dynamic[name], prepared)
        if made is not None:
            found[name] = made
    return found


def at_run_time(x: Singles) -> Singles:
    """The tensor as DynamicQuantizeLinear has it: uint8 integers of its own range."""
    observer = MinMaxObserver()
    observer.observe(x, 0)
    return fake_quantize(x, observer.calculate_qparams())


def _static_layer(node: ir.Node, decision: Quantize, prepared: Prepared) -> IntegerLayer | None:
    """The layer; None: it has no weight, or another node's kernel carries it out."""
    if decision.rule.weight is None or decision.folded_into:
        return None
    key = weight_key(prepared, node, decision.rule)

    def rounded(weight: Singles) -> Singles:
        return fake_quantize(weight, observe_weight(weight, key)[0])

    bias, _ = bias_of(node, decision.rule, prepared.decisions)
    observer = _observer(node, prepared)
    return IntegerLayer(node, decision.rule.weight.slot, rounded, observer, bias is not None)


def _observer(node: ir.Node, prepared: Prepared) -> ObserverSpec:
    """Observer of a static layer's input, or of the one that will stand in its place."""
    x = value_name(input_at(node, 0))
    if x in prepared.observed:
        return prepared.observed[x]
    entry = prepared.chosen.mapping.for_node(node_name(node), node.op_type)
    assert entry is not None, "the node is quantized"
    return entry.activation_observer


def _dynamic_layer(
    node: ir.Node, decision: QuantizeDynamic, prepared: Prepared
) -> IntegerLayer | None:
    """The layer; None: not one of a matrix and integers."""
    operator = catalog.find(node.op_type, node.domain)
    rule = None if operator is None else operator.dynamic_rule(node)
    if decision.precision is not Precision.DYNAMIC_INT8 or not isinstance(rule, DynamicRule):
        return None
    if len(rule.weights) != 1:
        return None
    (weight,), (planned,) = rule.weights, decision.weights
    entry = prepared.chosen.mapping.entry_for_node(node_name(node), node.op_type)
    assert isinstance(entry, QConfigDynamic), "the node is quantized dynamically"
    named = prepared.chosen.mapping.for_tensor(planned.tensor)
    spec = named if isinstance(named, ObserverSpec) else entry.weight_observer
    has_one = planned.qparams is not None and isinstance(planned.qparams.granularity, PerTensor)
    key = StorageKey(planned.tensor, None if has_one else weight.axis, None, spec)
    limit = prepared.target.weight_qmax if planned.integer_limit is None else planned.integer_limit

    def rounded(array: Singles) -> Singles:
        return fake_quantize(array, observe_stored(array, key, limit)[0])

    return IntegerLayer(node, weight.slot, rounded, None, has_bias=False)


def _dynamic(prepared: Prepared, objective: Objective) -> dict[str, QuantizeDynamic]:
    """Nodes that are quantized dynamically as things stand."""
    chosen = prepared.chosen.mapping
    if not chosen.has_dynamic:
        return {}
    return dynamic_plan(
        prepared.model,
        chosen,
        prepared.target,
        objective,
        known_hash=prepared.model_hash,
        asked=prepared.qconfig,
    ).quantized
