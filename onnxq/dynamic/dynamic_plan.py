"""The plan of dynamic quantization: a decision and the numbers for every node, without data.

Each node alone, bodies of If, Loop and Scan included: has its operator a dynamic rule, does the
qconfig ask for it, which precision, and is that precision worth it on the target. Nothing is timed
here: the target holds what was measured.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.catalog import has_dynamic_quantization
from onnxq.core.reason import Reason
from onnxq.dtypes import BYTE_BITS, INT8
from onnxq.dynamic import reasons, requests
from onnxq.dynamic.ahead_of_amplifying import ahead_of_amplifying
from onnxq.dynamic.choose_precision import choose_precision, rows_of, stored_type
from onnxq.dynamic.dynamic_decision import (
    DynamicDecision,
    DynamicPlan,
    DynamicWeightPlan,
    Objective,
    QuantizeDynamic,
)
from onnxq.dynamic.dynamic_weights import (
    FEW_ROWS,
    StorageKey,
    StoredScales,
    check_finite,
    plan_half,
    plan_stored,
    stored_scales,
    unpermuted,
    with_bias_preserving,
    with_one_scale,
)
from onnxq.dynamic.known_inputs import ALIKE, raw_tensors
from onnxq.dynamic.lookup_tables import computed_from_less, kept_in_float, too_little_saved
from onnxq.dynamic.positive_inputs import positive_values
from onnxq.dynamic.tied_weights import find_tied, notes_on_copies, notes_on_tied, shared_limits
from onnxq.graph.io import model_hash
from onnxq.graph.prequantized_weights import is_prequantized, notes_on_integers, stored_bits
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers import ObserverSpec
from onnxq.operator import DynamicRule, DynamicWeight, Float, Precision
from onnxq.operator.nodes import find_input, input_at, tensor_of
from onnxq.operator.reasons import ComputedAtRunTime, LeftByRequest, TensorLeftByRequest
from onnxq.qconfig import QConfigDynamic, QConfigMapping, onnxq_default_dynamic_qconfig
from onnxq.qparams import PerTensor, QParams
from onnxq.targets import Target
from onnxq.targets.speedups import LINEAR_OPS

OPERANDS = 2  # of a MatMul
IN_FLOAT = "computed in float32"
BLOCK_SIZE = 32  # weights per scale where the qconfig names none; ONNX Runtime's kernels want >= 16


def dynamic_plan(
    model: ir.Model,
    qconfig: QConfigMapping,
    target: Target,
    objective: Objective = Objective.SPEED,
    notes: Sequence[str] = (),
    known_hash: str | None = None,
    asked: QConfigMapping | None = None,
    sizes: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> DynamicPlan:
    """A decision for every node of a canonical model.

    `known_hash`: the model's `model_hash`, which takes a second per GB; None: computed.
    `asked`: the qconfig that the user wrote, whose entries deserve a note where they have no
    effect; None: that one.
    `sizes`: value name -> its sizes for the inputs that are to be expected, where the model
    leaves some open; without, an open size counts as 1.
    """
    planner = _Planner(
        qconfig,
        target,
        objective,
        [*notes],
        asked or qconfig,
        _alike(model),
        ahead_of_amplifying(model) if objective is Objective.SPEED else {},
        sizes,
        positive_values(model),
    )
    decisions = planner.decide([node for node, _ in walk(model.graph)])
    return DynamicPlan(
        known_hash or model_hash(model),
        target.name,
        objective,
        decisions,
        tuple(planner.slower),
        tuple(dict.fromkeys(planner.notes)),
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A node that is quantized, its numbers still missing."""

    node: ir.Node
    rule: DynamicRule
    entry: QConfigDynamic
    precision: Precision


def _alike(model: ir.Model) -> dict[str, float]:
    """Weight -> how much the numbers are the same that its first reader multiplies."""
    raw = raw_tensors(model)
    found: dict[str, float] = {}
    for node in (node for node in model.graph if node.op_type in LINEAR_OPS):
        for slot in range(OPERANDS):
            x, weight = find_input(node, 1 - slot), find_input(node, slot)
            if x is not None and weight is not None and weight.is_initializer():
                found.setdefault(value_name(weight), ALIKE if x.name in raw else 0.0)
    return found


@dataclass(slots=True)
class _Planner:
    """Planner of one model: what stays the same from node to node, and what grows."""

    qconfig: QConfigMapping
    target: Target
    objective: Objective
    notes: list[str]
    asked: QConfigMapping
    alike: Mapping[str, float]
    ahead_of_amplifying: Mapping[ir.Node, str]
    sizes: Mapping[str, Sequence[int]]
    positive: Container[ir.Value]
    observed: dict[StorageKey, StoredScales] = field(default_factory=dict)
    limits: dict[StorageKey, int] = field(default_factory=dict)
    slower: list[str] = field(default_factory=list)
    few_rows: list[str] = field(default_factory=list)
    twins: dict[str, str] = field(default_factory=dict)
    given: dict[str, tuple[ir.Value, QParams]] = field(default_factory=dict)

    def decide(self, nodes: Sequence[ir.Node]) -> dict[str, DynamicDecision]:
        """Node name -> decision; readers of a weight share its narrowest integers."""
        choices = {node_name(node): self._choose(node) for node in nodes}
        readers = [node for node in nodes if has_dynamic_quantization(node)]
        read = [v for node in readers for v in node.inputs if v is not None]
        twins = find_tied([v for v in read if v.is_initializer()])
        if self.objective is Objective.SPEED:
            choices |= self._kept_embeddings(choices, twins)
        chosen = [c for c in choices.values() if isinstance(c, _Chosen)]
        for choice in chosen:
            for weight in choice.rule.weights:
                key, limit = self._key(choice, weight), self._limit(choice)
                self.limits[key] = min(limit, self.limits.get(key, limit))
        self.twins = {value_name(value): value_name(twin) for value, twin in twins.items()}
        self.limits = shared_limits(self.limits, self.twins)
        decisions = {
            name: self._planned(choice) if isinstance(choice, _Chosen) else choice
            for name, choice in choices.items()
        }
        self.notes += requests.unmet_dynamic(nodes, decisions, self.asked, self.slower)
        quantized, static = list(_quantized(decisions).values()), self._static(nodes)
        if self.slower and not quantized and self.asked.has_dynamic:
            note = requests.nothing_dynamic if static else requests.nothing_quantized
            self.notes.append(note(self.target.name))
        self.notes += requests.notes_on_open_sizes(self.few_rows)
        self.notes[:0] = notes_on_integers(self.given, f"for target '{self.target.name}'")
        stored = [weight for decision in quantized for weight in decision.weights]
        self.notes += notes_on_tied(stored, self.twins) if stored else []
        self.notes += notes_on_copies(nodes, _quantized(decisions), static)
        return decisions

    def _static(self, nodes: Sequence[ir.Node]) -> set[str]:
        """Names of the nodes that have a static QConfig."""
        named = {node_name(node): node.op_type for node in nodes}
        return {n for n, op_type in named.items() if self.qconfig.for_node(n, op_type) is not None}

    def _kept_embeddings(
        self, choices: Mapping[str, _Chosen | Float], twins: dict[ir.Value, ir.Value]
    ) -> dict[str, Float]:
        """Readers of the embeddings that float layers keep in the file: they stay in float."""
        left: dict[str, Float] = {}
        chosen = {name: c for name, c in choices.items() if isinstance(c, _Chosen)}
        nodes = {c.node for c in chosen.values()}
        for name, choice in chosen.items():
            if (
                choice.entry.precision is not None
                or choice.precision is Precision.WEIGHT_ONLY_FLOAT16
            ):
                continue
            if kept := kept_in_float(choice.node, nodes, twins):
                left[name] = Float(kept)
                self.slower.append(name)
        return left

    def _planned(self, choice: _Chosen) -> DynamicDecision:
        """The decision with its numbers."""
        weights = []
        for weight in choice.rule.weights:
            value = input_at(choice.node, weight.slot)
            stored: DynamicWeightPlan | Float
            if choice.precision is Precision.WEIGHT_ONLY_FLOAT16:
                stored, notes = plan_half(value, weight)
                self.notes += notes
            else:
                key = self._key(choice, weight)
                if key not in self.observed:  # nodes that agree in it share its scales
                    self.observed[key], notes = stored_scales(value, key, self.limits[key])
                    self.notes += notes
                stored = plan_stored(value, weight, key, self.limits[key], self.observed[key])
                if self._may_have_one_scale(choice, weight, value):
                    stored = with_one_scale(stored)
                if is_prequantized(value) and key.block_size is None and stored.qparams is not None:
                    self.given[key.tensor] = value, unpermuted(stored.qparams, stored.perm)
                stored = with_bias_preserving(stored, choice.node, self.positive)
            if isinstance(stored, Float):
                return stored
            weights.append(stored)
        # who names a precision need not hear why it is that
        unasked = choice.entry.precision is None
        how = _how(choice.precision, weights, choice.rule.missing if unasked else "")
        return QuantizeDynamic(choice.precision, how, tuple(weights))

    def _may_have_one_scale(self, choice: _Chosen, weight: DynamicWeight, value: ir.Value) -> bool:
        """Whether nothing but speed is asked for, and one scale for all columns would be faster."""
        if self.objective is not Objective.SPEED or choice.precision is not Precision.DYNAMIC_INT8:
            return False
        scales = self.observed[self._key(choice, weight)].rounded_in.scale
        if is_prequantized(value) and np.unique(scales).size > 1:
            return False
        is_twin = value.name in self.twins or value.name in self.twins.values()
        if is_twin or len(value.uses()) > 1:
            return False
        default = onnxq_default_dynamic_qconfig.weight_observer
        return self._few_rows(choice, weight) and self._observer(value, choice.entry) == default

    def _few_rows(self, choice: _Chosen, weight: DynamicWeight) -> bool:
        """Whether the weight's layer may have so few rows that a scale per column costs time."""
        if weight.few_rows:
            return True
        rows = rows_of(choice.node, choice.rule, self.sizes)
        return choice.node.op_type in LINEAR_OPS and rows.least < FEW_ROWS

    def _key(self, choice: _Chosen, weight: DynamicWeight) -> StorageKey:
        value = input_at(choice.node, weight.slot)
        blocks = choice.precision is Precision.WEIGHT_ONLY_GROUPWISE
        size = (choice.entry.block_size or BLOCK_SIZE) if blocks else None
        rank = len(tensor_of(value).shape)
        axis = None if weight.axis is None else weight.axis % max(rank, 1)
        name = value_name(value)
        alike = self.alike.get(name, 0.0) if blocks else 0.0
        return StorageKey(name, axis, size, self._observer(value, choice.entry), alike)

    def _limit(self, choice: _Chosen) -> int:
        """Largest magnitude of an int8 integer that the target computes exactly."""
        if choice.rule.saturating_pairs and choice.precision is Precision.DYNAMIC_INT8:
            return self.target.weight_qmax_saturating
        return self.target.weight_qmax

    # --- which

    def _choose(self, node: ir.Node) -> _Chosen | Float:
        """The precision of a node that is quantized, or why it is not."""
        operator = catalog.find(node.op_type, node.domain)
        if operator is None or not operator.has_dynamic_rule():
            return Float(requests.without_form(node))
        entry = self.qconfig.entry_for_node(node_name(node), node.op_type)
        if entry is None:
            return Float(LeftByRequest())
        if not isinstance(entry, QConfigDynamic):
            return Float(reasons.NotAsked())
        rule = operator.dynamic_rule(node)
        if isinstance(rule, Float):
            return rule
        if reason := self._why_weights_forbid(node, rule, entry):
            return Float(reason)
        if entry.precision is None and node in self.ahead_of_amplifying:
            return Float(reasons.AheadOfAmplification(self.ahead_of_amplifying[node]))
        precision = self._precision(node, rule, entry)
        if not isinstance(precision, Float):
            return _Chosen(node, rule, entry, precision)
        if isinstance(precision.reason, reasons.SlowerThanFloat):
            self.slower.append(node_name(node))
            if precision.reason.rows is not None:
                self.few_rows.append(node_name(node))
            check_finite(input_at(node, weight.slot) for weight in rule.weights)
        return precision

    def _why_weights_forbid(
        self, node: ir.Node, rule: DynamicRule, entry: QConfigDynamic
    ) -> Reason | None:
        """Why a weight of this node cannot be stored as integers, or None."""
        for weight in rule.weights:
            value = find_input(node, weight.slot)
            if value is None:
                return reasons.WeightAbsent()
            if not value.is_initializer() or value.const_value is None or value.is_graph_input():
                return ComputedAtRunTime("weight", value_name(value))
            if value.dtype is None or value.dtype.name != "FLOAT":
                kind = "unknown" if value.dtype is None else value.dtype.name.lower()
                return reasons.WeightNotFloat32(value_name(value), kind)
            if value.const_value.size == 0:
                return reasons.WeightEmpty(value_name(value))
            if self.qconfig.for_tensor(value_name(value)) is None:
                return TensorLeftByRequest(value_name(value))
            if entry.precision is None and stored_bits(value) < BYTE_BITS:
                return reasons.StoredInFewerBits(value_name(value), stored_bits(value))
        return None

    def _precision(
        self, node: ir.Node, rule: DynamicRule, entry: QConfigDynamic
    ) -> Precision | Float:
        values = [node.inputs[weight.slot] for weight in rule.weights]
        dtype = stored_type([self._observer(v, entry) for v in values if v is not None])
        if isinstance(dtype, Float):
            return dtype
        precision = choose_precision(
            node,
            rule,
            entry.precision,
            dtype,
            self.target,
            self.objective,
            rows_of(node, rule, self.sizes),
        )
        is_alone = precision is Precision.WEIGHT_ONLY
        if not is_alone and self.objective is not Objective.SIZE:
            return precision
        if not self._is_default(node, rule, entry):
            return precision
        grown = computed_from_less(input_at(node, weight.slot) for weight in rule.weights)
        return grown or (too_little_saved(node) if is_alone else None) or precision

    def _is_default(self, node: ir.Node, rule: DynamicRule, entry: QConfigDynamic) -> bool:
        """Whether the qconfig names neither a precision nor an observer for this node's weights."""
        default = onnxq_default_dynamic_qconfig.weight_observer
        values = [input_at(node, weight.slot) for weight in rule.weights]
        return entry.precision is None and all(self._observer(v, entry) == default for v in values)

    def _observer(self, value: ir.Value, entry: QConfigDynamic) -> ObserverSpec:
        return self.qconfig.weight_observer(value_name(value), tensor_of(value).size, entry)


def _quantized(decisions: Mapping[str, DynamicDecision]) -> dict[str, QuantizeDynamic]:
    return {n: d for n, d in decisions.items() if isinstance(d, QuantizeDynamic)}


def _how(
    precision: Precision, weights: Sequence[DynamicWeightPlan], missing: str
) -> reasons.WeightsStored:
    """How the weights of a node are stored, and why not as usual."""
    if precision is Precision.WEIGHT_ONLY_FLOAT16:
        return reasons.WeightsStored("float16 weights", IN_FLOAT, missing)
    qparams = weights[0].qparams
    assert qparams is not None
    limit = weights[0].integer_limit
    within = f" within +-{limit}" if qparams.dtype == INT8 and limit is not None else ""
    if precision is Precision.DYNAMIC_INT8:
        scales = " with one scale" if isinstance(qparams.granularity, PerTensor) else ""
        stored = f"{qparams.dtype} weights{within}{scales}"
        return reasons.WeightsStored(stored, "activations quantized at run time", missing)
    if precision is Precision.WEIGHT_ONLY_GROUPWISE:
        size = getattr(qparams.granularity, "size", "?")
        stored = f"{qparams.dtype} weights{within} in groups of {size}"
        return reasons.WeightsStored(stored, IN_FLOAT, missing)
    return reasons.WeightsStored(f"{qparams.dtype} weights{within} in the file", IN_FLOAT, missing)
