"""Adds the numbers: qparams of every tensor, weight and bias.

It may only demote a node to float, with a reason.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import catalog
from onnxq.affine import integer_bounds
from onnxq.core.brief import brief
from onnxq.core.collector import without_collector
from onnxq.core.reason import Reason
from onnxq.core.saved import Saved
from onnxq.dtypes import QDType
from onnxq.dynamic.dynamic_decision import Objective, QuantizeDynamic
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.tied_weights import notes_on_both_parts
from onnxq.errors import UnsupportedError
from onnxq.graph.walk import attribute_values, node_name, value_name, walk
from onnxq.operator import Call, Float, NodePlan, OperatorLimit
from onnxq.operator.nodes import input_at
from onnxq.page.card import card_of, counts
from onnxq.qconfig import QConfigMapping
from onnxq.qparams import QParams
from onnxq.quantized.outcome import Outcome
from onnxq.static.arguments import check_prepared, check_statistics
from onnxq.static.choosing.node_precisions import (
    NodePrecisions,
    Request,
    is_dynamic,
    named_mapping,
    precision_counts,
    with_dynamic,
)
from onnxq.static.deciders import with_measurements
from onnxq.static.insertion.channel_scales import channel_scales_of
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.planning.activation_qparams import tensor_qparams, untaken_branches
from onnxq.static.planning.clipped import with_shared_qparams
from onnxq.static.planning.constants import PlannedBias, PlannedWeight, check_weights_left
from onnxq.static.planning.pair_range import Saturated, check_saturated
from onnxq.static.planning.plan_constants import plan_constants
from onnxq.static.planning.plan_sums import with_agreeing_sums
from onnxq.static.planning.shifted import with_shifts
from onnxq.static.prepared import Prepared
from onnxq.static.statistics import Statistics
from onnxq.targets.reduce_range import ReducedRange, ReduceRange
from onnxq.times.model_times import sizes_for

LOG = logging.getLogger(__name__)


CLIPPED_BITS = 8  # ONNX Runtime has Clip for int8 and uint8


@dataclass(frozen=True)
class Plan(Saved):
    """Every decision with its numbers; `rewrite` carries it out and decides nothing.

    Attributes:
        model_hash: the canonical float model that it was made for.
        target: name of the target.
        decisions: node name -> Quantize or Float(reason).
        tensors: activation tensor -> qparams (constants in activation slots included).
        integer_bounds: tensor -> integers that a folded Relu or Clip bounds it to, where its
            qparams reach further.
        channel_scales: tensor -> one factor per channel that its integers carry (see
            channel_scales).
        weights: node name -> PlannedWeight.
        biases: node name -> PlannedBias.
        notes: what a user should know.
        dynamic: node name -> how it is quantized dynamically; its decision is a Float, since its
            inputs and results are.
        reduce_range: where weights have a reduced range.
        reductions: node name -> how much the range of its weight is reduced; others: not.
        precisions: node name -> the precision that was chosen for it, and why; a node may stay in
            float all the same, where the data leave it without numbers: see its decision.
        asked: the qconfig that it was made with.
        outcomes: what became of the PTQ algorithms of weights; the weights of the plan are then
            those of the Prepared that came with it, not the float model's own.
    """

    FORMAT: ClassVar[str] = "onnxq plan 3"
    NOUN: ClassVar[str] = "a plan"
    ANEW: ClassVar[str] = "Make it anew with `onnxq quantize --save-plan`."

    model_hash: str
    target: str
    decisions: Mapping[str, Decision]
    tensors: Mapping[str, QParams]
    integer_bounds: Mapping[str, tuple[int, int]]
    channel_scales: Mapping[str, tuple[float, ...]]
    weights: Mapping[str, PlannedWeight]
    biases: Mapping[str, PlannedBias]
    notes: tuple[str, ...]
    dynamic: Mapping[str, QuantizeDynamic]
    reduce_range: ReduceRange
    reductions: Mapping[str, ReducedRange]
    precisions: NodePrecisions
    asked: Request
    outcomes: tuple[Outcome, ...] = ()

    __repr__ = brief

    def _repr_html_(self) -> str:
        return card_of(self, counts("precision", precision_counts(self.precisions)))

    @property
    def dtypes(self) -> dict[str, QDType]:
        """Activation tensor -> type of its integers."""
        return {name: qparams.dtype for name, qparams in self.tensors.items()}

    @property
    def qconfig(self) -> QConfigMapping:
        """The mapping that names the precision of every node: with it nothing is left to choose.

        `prepare` with it, and the same samples or statistics, gives the same file.
        """
        return named_mapping(self.asked.mapping, self.precisions, self.dynamic)

    def __hash__(self) -> int:
        return hash(self.model_hash)


@without_collector()
def plan(
    prepared: Prepared,
    statistics: Statistics,
    objective: Objective = Objective.SPEED,
    saturated: Saturated | None = None,
) -> Plan:
    """A Plan: the decisions of `prepared`, with qparams from `statistics` and from the weights.

    A range becomes a scale in this order, as each step reads what the steps before it decided:

        with_measurements       precisions that the data and times leave; all below is for these
        tensor_qparams      range -> scale and zero point of each group of tensors; within it,
                            with_curves widens ranges ahead of functions that amplify errors
        demoted             nodes to float whose tensors have no scale, or one that no kernel takes
        with_shifts         one scale for both sides of a sum with a number, where that rounds less
        with_shared_qparams   one scale for both sides of a Clip whose input others read too
        with_agreeing_sums  scales raised until all machines round sums and products alike
        channel_scales_of            scales per channel, of tensors whose readers all stayed in
        integers

    Weights and biases come last: a bias has the scale of its input times that of its weight.

    Args:
        prepared: a decision for every node.
        statistics: of its observed tensors.
        objective: of the nodes that are quantized dynamically; SIZE stores the weights of those
            that stay float, too, unless the qconfig names them.
        saturated: channels whose products left int16 on samples; for a target whose range
            reduction is OBSERVED (see onnxq.static.observed_range), and no other.
    Raises:
        CalibrationError: the statistics are of another model, or lack a tensor that is observed; or
            nobody says which channels saturated.
        ModelError: a weight or a bias holds NaN or Inf.
        QConfigError: a weight observer gives integers that the target cannot run exactly.
        UnsupportedError: a Relu or Clip needs a Clip on integers of 16 bits.
    """
    check_prepared(prepared, "plan")
    check_statistics(statistics, "plan")
    statistics.check_model(prepared.model_hash)
    prepared, of_precisions = with_measurements(prepared, statistics, objective)
    check_saturated(prepared.target, saturated)
    tensors, unseen, notes = tensor_qparams(prepared, statistics)
    notes += [*statistics.notes(), *of_precisions]
    notes += untaken_branches(prepared, statistics)
    decisions = demoted(prepared, unseen, tensors)
    tensors = with_shifts(prepared, decisions, tensors)
    tensors = with_shared_qparams(prepared, decisions, statistics, tensors)
    if statistics.not_finite:
        check_weights_left(prepared, decisions)
    tensors, of_sums = with_agreeing_sums(prepared, decisions, tensors)
    notes += of_sums
    channel_scales = _channel_scales(prepared, statistics, tensors, decisions)
    constants = plan_constants(prepared, statistics, decisions, tensors, channel_scales, saturated)
    dynamic, reasons, of_dynamic = _dynamic(prepared, statistics, objective)
    decisions |= reasons
    precisions = with_dynamic(prepared.precisions, dynamic, reasons)
    stored = {weight.tensor for weight in constants.weights.values()}
    notes += [*of_dynamic, *notes_on_both_parts(stored, dynamic.values())]
    LOG.info("planned: %d tensors, %d weights", len(tensors), len(constants.weights))
    # factors of channels keep 0, and have the upper bound within the integers
    clamps = {t: (0.0, math.inf) if t in channel_scales else c for t, c in prepared.clamps.items()}
    return Plan(
        prepared.model_hash,
        prepared.target.name,
        decisions,
        tensors,
        _integer_bounds(clamps, tensors),
        {tensor: tuple(channel_scale.tolist()) for tensor, channel_scale in channel_scales.items()},
        constants.weights,
        constants.biases,
        (*constants.notes, *prepared.notes, *notes),
        dynamic,
        prepared.target.reduce_range,
        constants.reductions,
        precisions,
        Request(prepared.qconfig),
        prepared.outcomes,
    )


def _dynamic(
    prepared: Prepared, statistics: Statistics, objective: Objective
) -> tuple[dict[str, QuantizeDynamic], dict[str, Float], tuple[str, ...]]:
    """(nodes that are quantized dynamically, a reason for every other that was to be, notes)."""
    chosen = prepared.chosen.mapping
    if not chosen.has_dynamic:
        return {}, {}, ()
    made = dynamic_plan(
        prepared.model,
        chosen,
        prepared.target,
        objective,
        known_hash=prepared.model_hash,
        asked=prepared.qconfig,
        sizes=sizes_for(prepared.model, statistics.samples.shapes),
    )
    asked = {n for n, d in prepared.decisions.items() if is_dynamic(d)}
    reasons = {n: d for n in asked if isinstance(d := made.decisions[n], Float)}
    return made.quantized, reasons, made.notes


def _channel_scales(
    prepared: Prepared,
    statistics: Statistics,
    tensors: Mapping[str, QParams],
    decisions: Mapping[str, Decision],
) -> dict[str, npt.NDArray[np.float32]]:
    """The factors of those tensors whose producer and readers all run in integers."""
    observers = prepared.observed
    return {
        channel_scale.tensor: channel_scales_of(
            statistics.observer(tensor, observers[tensor]), tensors[tensor]
        )
        for tensor, channel_scale in prepared.channel_scales.items()
        if not any(
            isinstance(decisions[n], Float)
            for n in (channel_scale.producer, *channel_scale.readers)
        )
    }


def _integer_bounds(
    clamps: Mapping[str, tuple[float, float]], tensors: Mapping[str, QParams]
) -> dict[str, tuple[int, int]]:
    bounds = {}
    for tensor, interval in clamps.items():
        if tensor not in tensors:
            continue
        p = tensors[tensor]
        low, high = integer_bounds(interval, p)
        if (low, high) == (p.dtype.qmin, p.dtype.qmax):
            continue
        if p.dtype.bits > CLIPPED_BITS:
            raise UnsupportedError(
                f"tensor '{tensor}': its Relu or Clip needs a Clip of {p.dtype} integers to {low} "
                f".. {high}, which ONNX Runtime lacks. Use 8 bits for it, or leave the Relu or "
                "Clip float in the qconfig."
            )
        bounds[tensor] = (low, high)
    return bounds


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
