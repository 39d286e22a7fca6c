"""Constants of a plan: qparams of every weight and bias of nodes that run in integers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.graph.prequantized_weights import is_prequantized, notes_on_integers, qparams_of_weight
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers.weight_observation import WeightKey
from onnxq.operator import Float
from onnxq.operator.nodes import has_input, input_at
from onnxq.qparams import QParams
from onnxq.static.insertion.decision import Decision, weight_of
from onnxq.static.planning import constants
from onnxq.static.planning.input_means import input_means
from onnxq.static.planning.pair_range import Saturated, reduced, with_means
from onnxq.static.prepared import Prepared
from onnxq.static.statistics import Statistics
from onnxq.targets.reduce_range import ReducedRange


@dataclass(frozen=True, slots=True)
class PlannedConstants:
    """Weights, biases and reductions as a Plan has them, and notes on them.

    Attributes:
        reductions: node name -> how much the range of its weight is reduced; others: not.
    """

    weights: dict[str, constants.PlannedWeight]
    biases: dict[str, constants.PlannedBias]
    reductions: dict[str, ReducedRange]
    notes: list[str]


def plan_constants(
    prepared: Prepared,
    statistics: Statistics,
    decisions: Mapping[str, Decision],
    tensors: Mapping[str, QParams],
    channel_scales: Mapping[str, npt.NDArray[np.float32]],
    saturated: Saturated | None,
) -> PlannedConstants:
    """Weights and biases of the nodes that run in integers; nodes of one key share qparams."""
    nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
    observed: dict[WeightKey, QParams] = {}
    planned = PlannedConstants({}, {}, {}, [])
    given: dict[str, tuple[ir.Value, QParams]] = {}
    for name, decision in decisions.items():
        if isinstance(decision, Float) or decision.rule.weight is None or decision.folded_into:
            continue
        node, rule = nodes[name], decision.rule
        x = value_name(input_at(node, rule.activations[0]))
        made = channel_scales.get(decision.results[0]) if decision.results else None
        key = constants.weight_key(prepared, node, rule)
        if key not in observed:
            observed[key], notes = qparams_of_weight(weight_of(node, rule), key)
            planned.notes.extend(notes)
        weight = constants.plan_weight(key, observed[key], weight_of(node, rule))
        if made is not None or x in channel_scales:
            weight = constants.with_channel_scale(weight, made, channel_scales.get(x))
        weight, reduction = reduced(weight, node, rule, prepared.target, saturated)
        weight = with_means(weight, input_means(node, rule, statistics.probed))
        if reduction is not None:
            planned.reductions[name] = reduction
        if rule.bias is not None and has_input(node, rule.bias):
            weight, bias, notes = constants.plan_bias(node, rule, tensors[x], weight, made)
            planned.biases[name] = bias
            planned.notes.extend(notes)
        elif decision.results and (added := constants.folded_bias(node, decisions)) is not None:
            weight, notes = constants.with_room(node, added, tensors[x], weight)
            planned.notes.extend(notes)
        planned.weights[name] = weight
        if weight.channel_scale is None and is_prequantized(weight_of(node, rule)):
            given[weight.tensor] = weight_of(node, rule), weight.qparams
    planned.notes.extend(notes_on_integers(given, f"for target '{prepared.target.name}'"))
    return planned
