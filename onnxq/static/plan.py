"""Adds the numbers: qparams of every tensor, weight and bias.

It may only demote a node to float, with a reason.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq import catalog
from onnxq.core.atomic import write_atomically
from onnxq.dynamic.dynamic_decision import (
    Objective,
    QuantizeDynamic,
    dynamic_part,
    dynamic_to_dict,
)
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.tied_weights import notes_on_both_parts
from onnxq.errors import CalibrationError, OnnxqError, UnsupportedError
from onnxq.graph.collector import without_collector
from onnxq.graph.walk import attribute_values, node_name, walk
from onnxq.operator import Call, Float, NodePlan
from onnxq.qparams import QParams, quantize
from onnxq.static.arguments import check_prepared, check_statistics
from onnxq.static.placing.candidates import DYNAMICALLY
from onnxq.static.placing.channel_gains import gains_of
from onnxq.static.placing.decision import Decision, Quantize, decision_from_dict, decision_to_dict
from onnxq.static.planning.activation_qparams import tensor_qparams, untaken_branches
from onnxq.static.planning.constants import BiasPlan, WeightPlan, plan_bias, plan_weight, with_gain
from onnxq.static.planning.pair_range import check_saturated, reduced
from onnxq.static.planning.plan_sums import let_sums_agree
from onnxq.targets.range_reduction import RangeReduction, Reduction

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.observers.weight_observation import WeightKey
    from onnxq.static.planning.pair_range import Saturated
    from onnxq.static.prepare import Prepared
    from onnxq.static.statistics import Statistics


FORMAT = "onnxq plan 2"
CLIPPED_BITS = 8  # ONNX Runtime has Clip for int8 and uint8
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, OnnxqError)
"""Errors that reading another file, or an altered one, raises."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Every decision with its numbers; `rewrite` carries it out and decides nothing.

    Attributes:
        model_hash: the canonical float model that it was made for.
        target: name of the target.
        decisions: node name -> Quantize or Float(reason).
        tensors: activation tensor -> qparams (constants in activation slots included).
        code_bounds: tensor -> codes that a folded Relu or Clip bounds it to, where its qparams
            reach further.
        gains: tensor -> one factor per channel that its codes carry (see channel_gains).
        weights: node name -> WeightPlan.
        biases: node name -> BiasPlan.
        notes: what a user should know.
        dynamic: node name -> how it is quantized dynamically; its decision is a Float, since its
            inputs and results are.
        range_reduction: where weights gave up range.
        reductions: node name -> how much its weight gave up; the others nothing.
    """

    model_hash: str
    target: str
    decisions: Mapping[str, Decision]
    tensors: Mapping[str, QParams]
    code_bounds: Mapping[str, tuple[int, int]]
    gains: Mapping[str, tuple[float, ...]]
    weights: Mapping[str, WeightPlan]
    biases: Mapping[str, BiasPlan]
    notes: tuple[str, ...]
    dynamic: Mapping[str, QuantizeDynamic] = field(default_factory=dict)
    range_reduction: RangeReduction = RangeReduction.WORST_CASE
    reductions: Mapping[str, Reduction] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.model_hash)

    def to_dict(self) -> dict[str, object]:
        """Plain values that JSON can hold; float32 survives exactly."""
        return {
            "format": FORMAT,
            "model_hash": self.model_hash,
            "target": self.target,
            "decisions": {k: decision_to_dict(d) for k, d in self.decisions.items()},
            "tensors": {k: p.to_dict() for k, p in self.tensors.items()},
            "code_bounds": {k: list(b) for k, b in self.code_bounds.items()},
            "gains": {k: list(g) for k, g in self.gains.items()},
            "weights": {k: w.to_dict() for k, w in self.weights.items()},
            "biases": {k: b.to_dict() for k, b in self.biases.items()},
            "notes": list(self.notes),
            "dynamic": {k: dynamic_to_dict(d) for k, d in self.dynamic.items()},
            "range_reduction": self.range_reduction.value,
            "reductions": {k: dataclasses.asdict(r) for k, r in self.reductions.items()},
        }

    def save(self, path: str | Path) -> None:
        """Writes JSON, atomically.

        Raises:
            OutputError: the path cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        write_atomically(Path(path), lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Reads what `save` wrote.

        Raises:
            CalibrationError: the file is missing or is not a plan of this version.
        """
        try:
            return _from_dict(json.loads(Path(path).read_text()))
        except UNREADABLE as error:
            raise CalibrationError(
                f"{path}: not a plan that this version of onnxq wrote ({error!r}). "
                "Make it anew with `onnxq quantize --save-plan`."
            ) from error


def _from_dict(data: Any) -> Plan:
    """The inverse of Plan.to_dict; whatever JSON held, so any of the errors that `load` catches."""
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}")
    return Plan(
        data["model_hash"],
        data["target"],
        {k: decision_from_dict(d) for k, d in data["decisions"].items()},
        {k: QParams.from_dict(p) for k, p in data["tensors"].items()},
        {k: (b[0], b[1]) for k, b in data["code_bounds"].items()},
        {k: tuple(g) for k, g in data["gains"].items()},
        {k: WeightPlan.from_dict(w) for k, w in data["weights"].items()},
        {k: BiasPlan.from_dict(b) for k, b in data["biases"].items()},
        tuple(data["notes"]),
        dynamic_part(data["dynamic"]),
        RangeReduction(data["range_reduction"]),
        {k: Reduction(**r) for k, r in data["reductions"].items()},
    )


@without_collector()
def plan(
    prepared: Prepared,
    statistics: Statistics,
    objective: Objective = Objective.SPEED,
    saturated: Saturated | None = None,
) -> Plan:
    """A Plan: the decisions of `prepared`, with qparams from `statistics` and from the weights.

    Args:
        prepared: a decision for every node.
        statistics: of its observed tensors.
        objective: of the nodes that the qconfig wants quantized dynamically.
        saturated: channels whose products left int16 on samples; for a target whose range
            reduction is OBSERVED (see onnxq.static.observed_range), and no other.

    Raises:
        CalibrationError: the statistics are of another model, or lack a tensor that is observed; or
            nobody says which channels saturated.
        QConfigError: a weight observer gives codes that the target cannot run exactly.
        UnsupportedError: a Relu or Clip needs a Clip on codes of 16 bits.
    """
    check_prepared(prepared, "plan")
    check_statistics(statistics, "plan")
    statistics.check_model(prepared.model_hash)
    check_saturated(prepared.target, saturated)
    notes: list[str] = []
    tensors, unseen = tensor_qparams(prepared, statistics, notes)
    notes += untaken_branches(prepared, statistics)
    decisions = _demote(prepared, unseen, tensors)
    if prepared.target.agreeing_sums:
        let_sums_agree(prepared, decisions, tensors, notes)
    nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
    weights: dict[str, WeightPlan] = {}
    biases: dict[str, BiasPlan] = {}
    reductions: dict[str, Reduction] = {}
    observed: dict[WeightKey, QParams] = {}
    gains = _gains(prepared, statistics, tensors, decisions)
    for name, decision in decisions.items():
        if isinstance(decision, Float) or decision.rule.weight is None or decision.folded_into:
            continue
        node = nodes[name]
        x = _tensor_name(node, decision.rule.activations[0])
        made = gains.get(decision.results[0]) if decision.results else None
        weight = plan_weight(prepared, node, decision.rule, observed, notes)
        if made is not None or x in gains:
            weight = with_gain(weight, made, gains.get(x))
        weight, reduction = reduced(weight, node, decision.rule, prepared.target, saturated)
        if reduction is not None:
            reductions[name] = reduction
        if decision.rule.bias is not None and _has_input(node, decision.rule.bias):
            weight, biases[name] = plan_bias(node, decision.rule, tensors[x], weight, notes, made)
        weights[name] = weight
    dynamic, reasons = _dynamic(prepared, objective, notes)
    decisions |= reasons
    notes += notes_on_both_parts({weight.tensor for weight in weights.values()}, dynamic.values())
    return Plan(
        prepared.model_hash,
        prepared.target.name,
        decisions,
        tensors,
        _code_bounds(_clamps(prepared, gains), tensors),
        {tensor: tuple(gain.tolist()) for tensor, gain in gains.items()},
        weights,
        biases,
        (*prepared.notes, *notes),
        dynamic,
        prepared.target.range_reduction,
        reductions,
    )


def _dynamic(
    prepared: Prepared, objective: Objective, notes: list[str]
) -> tuple[dict[str, QuantizeDynamic], dict[str, Float]]:
    """(nodes that are quantized dynamically, what to say of every node that was to be)."""
    if not prepared.qconfig.has_dynamic:
        return {}, {}
    made = dynamic_plan(
        prepared.model, prepared.qconfig, prepared.target, objective, (), prepared.model_hash
    )
    notes += made.notes
    asked = {n for n, d in prepared.decisions.items() if d == Float(DYNAMICALLY)}
    reasons = {n: d for n in asked if isinstance(d := made.decisions[n], Float)}
    return made.quantized, reasons


def _gains(
    prepared: Prepared,
    statistics: Statistics,
    tensors: Mapping[str, QParams],
    decisions: Mapping[str, Decision],
) -> dict[str, npt.NDArray[np.float32]]:
    """The factors of those tensors whose producer and readers all run in integers."""
    observers = prepared.observed
    return {
        gain.tensor: gains_of(statistics.observer(tensor, observers[tensor]), tensors[tensor])
        for tensor, gain in prepared.channel_gains.items()
        if not any(isinstance(decisions[n], Float) for n in (gain.producer, *gain.readers))
    }


def _demote(
    prepared: Prepared, unseen: Mapping[str, str], tensors: Mapping[str, QParams]
) -> dict[str, Decision]:
    """The decisions; nodes with a tensor that has no qparams, or unfit ones, are in float."""
    decisions: dict[str, Decision] = {}
    for node, _ in walk(prepared.model.graph):
        name = node_name(node)
        decision = prepared.decisions[name]
        if isinstance(decision, Quantize):
            read = [_tensor_name(node, slot) for slot in decision.rule.activations]
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


def _misfit(node: ir.Node, decision: Quantize, tensors: Mapping[str, QParams]) -> str:
    """Why ONNX Runtime does not run the node with these qparams, or the empty string."""
    operator = catalog.find(node.op_type, node.domain)
    rule = decision.rule
    if operator is None or decision.folded_into or len(decision.results) < len(rule.outputs):
        return ""
    inputs = {slot: tensors[_tensor_name(node, slot)] for slot in rule.activations}
    outputs = dict(zip(rule.outputs, (tensors[t] for t in decision.results), strict=True))
    plan = NodePlan(
        tuple(inputs.get(slot) for slot in range(len(node.inputs))),
        tuple(outputs.get(slot) for slot in range(len(node.outputs))),
    )
    return operator.misfit(Call(node.op_type, (), plan, attributes=attribute_values(node)))


def _clamps(prepared: Prepared, gains: Container[str]) -> dict[str, tuple[float, float]]:
    """Real bounds of the codes; a factor per channel keeps 0, and has the upper one within it."""
    return {k: (0.0, math.inf) if k in gains else c for k, c in prepared.clamps.items()}


def _code_bounds(
    clamps: Mapping[str, tuple[float, float]], tensors: Mapping[str, QParams]
) -> dict[str, tuple[int, int]]:
    bounds = {}
    for tensor, interval in clamps.items():
        if tensor not in tensors:
            continue
        p = tensors[tensor]
        low, high = (int(code) for code in quantize(np.array(interval, np.float32), p))
        if (low, high) == (p.dtype.qmin, p.dtype.qmax):
            continue
        if p.dtype.bits > CLIPPED_BITS:
            raise UnsupportedError(
                f"tensor '{tensor}': its Relu or Clip needs a Clip of {p.dtype} codes to {low} .. "
                f"{high}, which ONNX Runtime lacks. Use 8 bits for it, or leave the Relu or Clip "
                "float in the qconfig."
            )
        bounds[tensor] = (low, high)
    return bounds


# --- small things


def _has_input(node: ir.Node, slot: int) -> bool:
    return slot < len(node.inputs) and node.inputs[slot] is not None


def _tensor_name(node: ir.Node, slot: int) -> str:
    value = node.inputs[slot]
    assert value is not None
    assert value.name
    return value.name
