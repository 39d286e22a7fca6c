"""Precisions that make the file smaller: weights of float nodes stored as int8.

ONNX Runtime makes floats of them when a session is made, so that they take no time of a run.

    saved = bytes in the file - (size + 5 channels)     of a weight: integers, scales, zero points
"""

import math
from dataclasses import replace

import onnx_ir as ir

from onnxq import catalog
from onnxq.catalog import has_dynamic_quantization
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.folded import given_bytes
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import DynamicWeight, Float, Precision
from onnxq.operator.nodes import find_input, tensor_of
from onnxq.static.choosing.measurements import Measurements
from onnxq.static.choosing.node_precisions import dynamic_entry
from onnxq.static.choosing.proposals import Proposal, Proposals, open_entry
from onnxq.static.prepared import Prepared
from onnxq.static.reasons import QuantizedAtRunTime

PER_CHANNEL = 5
WORTH_A_WORD = 0.05
"""Share of the bytes of all constants that a note is worth."""
MEGA, KILO = 1e6, 1e3


def by_size(prepared: Prepared, measurements: Measurements) -> Proposals:
    """Proposes that weights of float nodes are stored, as objective `size` wants it."""
    if measurements.objective is not Objective.SIZE:
        return {}
    naming: dict[str, Proposal] = {}
    for node in _storable(prepared):
        entry = open_entry(node, prepared.qconfig)
        assert entry is not None, "it is storable"
        stored = replace(dynamic_entry(entry), precision=Precision.WEIGHT_ONLY)
        naming[node_name(node)] = Proposal(stored, prepared.precisions[node_name(node)].reason)
    return naming


def note_on_size(prepared: Prepared, objective: Objective) -> list[str]:
    """One note on what objective `size` would save; none where that is little."""
    if objective is Objective.SIZE:
        return []
    nodes = _storable(prepared)
    weights = {value: weight for node in nodes for value, weight in _weights(node)}
    floats = sum(given_bytes(tensor_of(value)) for value in weights)
    saved = sum(_saved_bytes(value, weight) for value, weight in weights.items())
    constants = prepared.model.graph.initializers.values()
    whole = sum(tensor_of(value).nbytes for value in constants if value.const_value is not None)
    if saved <= WORTH_A_WORD * whole:
        return []
    return [
        f"{len(nodes)} node(s) with {_bytes(floats)} of weights stay float; objective 'size' "
        f"(--objective size) stores them as int8, {_bytes(saved)} less, at the same speed; they "
        "are rounded then"
    ]


def _storable(prepared: Prepared) -> list[ir.Node]:
    """Float nodes that nobody named, whose weights can be stored and have no other float reader."""
    nodes = [node for node, _ in walk(prepared.model.graph)]
    floats = {n for n in nodes if _stays_float(prepared, n)}
    could = [n for n in nodes if n in floats and _can_be_stored(prepared, n)]
    others = floats.difference(could)
    return [
        node
        for node in could
        if not any(reader in others for value, _ in _weights(node) for reader in value.consumers())
    ]


def _stays_float(prepared: Prepared, node: ir.Node) -> bool:
    decision = prepared.decisions[node_name(node)]
    return isinstance(decision, Float) and not isinstance(decision.reason, QuantizedAtRunTime)


def _can_be_stored(prepared: Prepared, node: ir.Node) -> bool:
    """Whether it is open, has the precision, and all of its weights are float constants."""
    operator = catalog.find(node.op_type, node.domain)
    if operator is None or not has_dynamic_quantization(node) or node_name(node) in prepared.left:
        return False
    if open_entry(node, prepared.qconfig) is None:
        return False
    rule = operator.dynamic_rule(node)
    if isinstance(rule, Float) or Precision.WEIGHT_ONLY not in rule.precisions:
        return False
    weights = _weights(node)
    if len(weights) < len(rule.weights) or sum(_saved_bytes(*each) for each in weights) <= 0:
        return False
    return all(prepared.qconfig.for_tensor(value_name(value)) is not None for value, _ in weights)


def _weights(node: ir.Node) -> list[tuple[ir.Value, DynamicWeight]]:
    """Weights that are float constants and hold numbers."""
    operator = catalog.find(node.op_type, node.domain)
    if operator is None:
        return []
    rule = operator.dynamic_rule(node)
    if isinstance(rule, Float):
        return []
    found = [(find_input(node, weight.slot), weight) for weight in rule.weights]
    return [(v, weight) for v, weight in found if v is not None and _is_float_constant(v)]


def _is_float_constant(value: ir.Value) -> bool:
    if not value.is_initializer() or value.is_graph_input() or value.const_value is None:
        return False
    return value.const_value.dtype.name == "FLOAT" and value.const_value.size > 0


def _saved_bytes(value: ir.Value, weight: DynamicWeight) -> int:
    """Bytes that integers, with a scale and a zero point per channel, save in the file."""
    sizes = tensor_of(value).shape.numpy()
    channels = 1 if weight.axis is None else sizes[weight.axis]
    count = math.prod(sizes)
    return given_bytes(tensor_of(value)) - count - PER_CHANNEL * channels


def _bytes(count: float) -> str:
    return f"{count / MEGA:.3g} MB" if count >= MEGA else f"{count / KILO:.3g} kB"
