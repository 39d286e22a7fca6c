"""Adds the numbers: qparams of every tensor, weight and bias.

It may only demote a node to float, with a reason.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.errors import CalibrationError
from onnxq.graph.atomic import write_atomically
from onnxq.graph.collector import without_collector
from onnxq.operator import Float
from onnxq.qparams import QParams, per_tensor, quantize
from onnxq.stages.channel_gains import gains_of
from onnxq.stages.decision import (
    Decision,
    Quantize,
    decision_from_dict,
    decision_to_dict,
    node_name,
    walk,
)
from onnxq.stages.plan_constants import (
    BiasPlan,
    WeightKey,
    WeightPlan,
    constant_array,
    plan_bias,
    plan_weight,
    with_gain,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.dtypes import QDType
    from onnxq.observers import Observer, ObserverSpec
    from onnxq.stages.prepare import Prepared, TensorGroup
    from onnxq.stages.statistics import Statistics


FORMAT = "onnxq plan 1"
NEARLY_ALL = 0.95  # share of the codes in use, from which on the others are not meant


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
        }

    def save(self, path: str | Path) -> None:
        """Writes JSON, atomically.

        Raises:
            OutputError: the path cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1)
        write_atomically(Path(path), lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Reads what `save` wrote.

        Raises:
            CalibrationError: the file is missing or is not a plan of this version.
        """
        try:
            return _from_dict(json.loads(Path(path).read_text()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
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
    )


@without_collector()
def plan(prepared: Prepared, statistics: Statistics) -> Plan:
    """A Plan: the decisions of `prepared`, with qparams from `statistics` and from the weights.

    Raises:
        CalibrationError: the statistics are of another model, or lack a tensor that is observed.
        QConfigError: a weight observer gives codes that the target cannot run exactly.
    """
    statistics.check_model(prepared.model_hash)
    notes: list[str] = []
    tensors, unseen = _tensor_qparams(prepared, statistics)
    decisions = _demote(prepared, unseen)
    nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
    weights: dict[str, WeightPlan] = {}
    biases: dict[str, BiasPlan] = {}
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
        if decision.rule.bias is not None and _has_input(node, decision.rule.bias):
            weight, biases[name] = plan_bias(node, decision.rule, tensors[x], weight, notes, made)
        weights[name] = weight
    return Plan(
        prepared.model_hash,
        prepared.target.name,
        decisions,
        tensors,
        _code_bounds({k: c for k, c in prepared.clamps.items() if k not in gains}, tensors),
        {tensor: tuple(gain.tolist()) for tensor, gain in gains.items()},
        weights,
        biases,
        (*prepared.notes, *notes),
    )


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


# --- activations


def _tensor_qparams(
    prepared: Prepared, statistics: Statistics
) -> tuple[dict[str, QParams], dict[str, str]]:
    """(tensor -> qparams, tensor -> why it has none)."""
    tensors: dict[str, QParams] = {}
    unseen: dict[str, str] = {}
    constants = {
        name: value
        for graph in prepared.model.graphs()
        for name, value in graph.initializers.items()
    }
    for group in prepared.groups:
        if group.range is not None:
            qparams = _qparams_of_range(group.range, group.observer().dtype)
            tensors.update(dict.fromkeys(group.members, qparams))
            continue
        merged = _merged(group, constants, statistics)
        if _saw_nothing(merged):
            reason = f"tensor '{group.members[0]}' was never observed: no sample reached it"
            unseen.update(dict.fromkeys(group.members, reason))
            continue
        qparams = merged.calculate_qparams()
        if len(group.members) == 1 and group.members[0] in prepared.clamps:
            qparams = _fitted(qparams, prepared.clamps[group.members[0]])
        tensors.update(dict.fromkeys(group.members, qparams))
    return tensors, unseen


def _fitted(qparams: QParams, clamp: tuple[float, float]) -> QParams:
    """The qparams with the last code at the Clip's upper bound, where it lies a little beyond.

    A histogram's end may do so by a fraction of a bin. The codes above the bound would never be
    used, and would need a Clip of their own.
    """
    dtype = qparams.dtype
    low, high = (int(code) for code in quantize(np.array(clamp, np.float32), qparams))
    nearly = dtype.qmin + NEARLY_ALL * (dtype.qmax - dtype.qmin)
    if low != int(qparams.zero_point) or low != dtype.qmin or not nearly <= high < dtype.qmax:
        return qparams
    return per_tensor(clamp[1] / (dtype.qmax - dtype.qmin), dtype.qmin, dtype)


def _merged(
    group: TensorGroup, constants: Mapping[str, ir.Value], statistics: Statistics
) -> Observer:
    """One observer that has seen every source and constant of the group."""
    observers = [statistics.observer(source, group.observer) for source in group.sources]
    for name in group.constants:
        observer = group.observer()
        observer.observe(constant_array(constants[name]), 0)
        observers.append(observer)
    return functools.reduce(lambda a, b: a.merge(b), observers)


def _saw_nothing(observer: Observer) -> bool:
    """Whether the observer is as a new one is."""
    state = observer.state()
    return all(np.array_equal(state[key], value) for key, value in _fresh_state(observer.spec))


@functools.cache
def _fresh_state(spec: ObserverSpec) -> tuple[tuple[str, npt.NDArray[np.generic]], ...]:
    return tuple(spec().state().items())


def _qparams_of_range(interval: tuple[float, float], dtype: QDType) -> QParams:
    """QParams whose first code is `low` and whose last one is `high`."""
    low, high = interval
    scale = (high - low) / (dtype.qmax - dtype.qmin)
    return per_tensor(scale, dtype.qmin - round(low / scale), dtype)


def _demote(prepared: Prepared, unseen: Mapping[str, str]) -> dict[str, Decision]:
    """The decisions, with every node in float that has a tensor without qparams."""
    if not unseen:
        return dict(prepared.decisions)
    decisions: dict[str, Decision] = {}
    for node, _ in walk(prepared.model.graph):
        name = node_name(node)
        decision = prepared.decisions[name]
        if isinstance(decision, Quantize):
            read = [_tensor_name(node, slot) for slot in decision.rule.activations]
            missing = [unseen[t] for t in (*read, *decision.results) if t in unseen]
            if missing:
                decision = Float(missing[0])
        decisions[name] = decision
    for name, decision in decisions.items():
        if isinstance(decision, Quantize) and decision.folded_into:
            into = decisions[decision.folded_into]
            if isinstance(into, Float):
                decisions[name] = into
    return decisions


def _code_bounds(
    clamps: Mapping[str, tuple[float, float]], tensors: Mapping[str, QParams]
) -> dict[str, tuple[int, int]]:
    bounds = {}
    for tensor, interval in clamps.items():
        if tensor not in tensors:
            continue
        p = tensors[tensor]
        low, high = (int(code) for code in quantize(np.array(interval, np.float32), p))
        if (low, high) != (p.dtype.qmin, p.dtype.qmax):
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
