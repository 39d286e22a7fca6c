"""The plan of dynamic quantization: a decision and the numbers for every node, without data.

Each node alone, bodies of If, Loop and Scan included: has its operator a dynamic rule, does the
qconfig ask for it, which form, and is that form worth it on the target. Nothing is timed here: the
target holds what was measured.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq import catalog
from onnxq.dtypes import INT8, QDType
from onnxq.errors import ModelError, QConfigError
from onnxq.graph.io import model_hash
from onnxq.observers import ObserverSpec
from onnxq.operator import DynamicForm, DynamicRule, Float
from onnxq.qconfig import QConfigDynamic
from onnxq.stages.candidates import has_dynamic_form
from onnxq.stages.decision import node_name, value_name, walk
from onnxq.stages.dynamic_decision import (
    DynamicDecision,
    DynamicPlan,
    DynamicWeightPlan,
    Objective,
    QuantizeDynamic,
)
from onnxq.stages.dynamic_spec import dynamic_op_types
from onnxq.stages.dynamic_weights import (
    Observed,
    StorageKey,
    can_be_in_blocks,
    plan_half,
    plan_stored,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from onnxq.qconfig import QConfigMapping
    from onnxq.targets import Target

BLOCK_SIZE = 32  # weights per scale where the qconfig names none; ONNX Runtime's kernels want >= 16
BYTE = 8  # bits of the codes that integer products exist for
AS_FAST = 1.0  # time in float / time quantized below which a node stays float for the sake of speed
MAX_NAMED = 4  # nodes named per reason in errors


def dynamic_plan(
    model: ir.Model,
    qconfig: QConfigMapping,
    target: Target,
    objective: Objective = Objective.SPEED,
    notes: Sequence[str] = (),
    known_hash: str | None = None,
) -> DynamicPlan:
    """A decision for every node of a canonical model.

    Args:
        model: canonical float model; it is not changed.
        qconfig: nodes with a QConfigDynamic may be quantized; others stay float.
        target: which codes it runs exactly, and what is fast on it.
        objective: what to do with nodes that would be slower.
        notes: what the user should know already.
        known_hash: the model's `model_hash`, which takes a second per GB; None: computed.

    Raises:
        ModelError: a weight holds NaN or Inf.
        QConfigError: an observer gives codes that the target cannot run exactly, or its type does
            not suit the form that the qconfig names.
    """
    planner = _Planner(qconfig, target, objective, [*notes])
    decisions = {node_name(node): planner.decide(node) for node, _ in walk(model.graph)}
    return DynamicPlan(
        known_hash or model_hash(model),
        target.name,
        objective,
        decisions,
        tuple(planner.slower),
        tuple(dict.fromkeys(planner.notes)),
    )


def check_something(plan: DynamicPlan, model: ir.Model) -> None:
    """Passes a plan that quantizes something, or would but for the target's measurements.

    Raises:
        ModelError: it does not; the message lists what was found.
    """
    if plan.quantized or plan.slower:
        return
    counts = Counter(node.op_type for node, _ in walk(model.graph))
    found = ", ".join(f"{count} {op_type}" for op_type, count in counts.most_common())
    names: dict[str, list[str]] = {}
    for node, _ in walk(model.graph):
        decision = plan.decisions[node_name(node)]
        if isinstance(decision, Float) and has_dynamic_form(node):
            names.setdefault(decision.reason, []).append(f"{node.op_type} '{node.name}'")
    reasons = "; ".join(f"{_listed(nodes)}: {reason}" for reason, nodes in names.items())
    raise ModelError(
        f"there are no weights to quantize. The model has {found}. "
        + (f"{reasons}. " if reasons else "None of them is quantized dynamically. ")
        + "Quantized dynamically are "
        + ", ".join(dynamic_op_types())
        + ", where their weights are constants and the qconfig names them."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


@dataclass(slots=True)
class _Planner:
    """What stays the same from node to node, and what grows."""

    qconfig: QConfigMapping
    target: Target
    objective: Objective
    notes: list[str]
    observed: Observed = field(default_factory=dict)
    slower: list[str] = field(default_factory=list)

    def decide(self, node: ir.Node) -> DynamicDecision:
        label = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        operator = catalog.find(node.op_type, node.domain)
        if operator is None or not operator.has_dynamic_rule():
            return Float(f"{label} has no weights that dynamic quantization stores")
        entry = self.qconfig.entry_for_node(node_name(node), node.op_type)
        if not isinstance(entry, QConfigDynamic):
            return Float("the qconfig does not ask for dynamic quantization of it")
        rule = operator.dynamic_rule(node)
        if isinstance(rule, Float):
            return rule
        if reason := self._why_weights_forbid(node, rule):
            return Float(reason)
        choice = self._choose(node, rule, entry)
        if isinstance(choice, Float):
            return choice
        weights = []
        for weight in rule.weights:
            value = node.inputs[weight.slot]
            assert value is not None
            stored: DynamicWeightPlan | Float
            if choice is DynamicForm.HALF:
                stored = plan_half(value, weight)
            else:
                size = self._block_size(entry) if choice is DynamicForm.BLOCKS else None
                pairs = rule.saturating_pairs and choice is DynamicForm.INTEGER
                limit = self.target.weight_qmax_saturating if pairs else self.target.weight_qmax
                spec = self._observer(value, entry)
                key = StorageKey(value_name(value), weight.axis, size, limit, spec)
                stored = plan_stored(value, weight, key, self.observed, self.notes)
            if isinstance(stored, Float):
                return stored
            weights.append(stored)
        return QuantizeDynamic(choice, _how(choice, weights), tuple(weights))

    # --- may it

    def _why_weights_forbid(self, node: ir.Node, rule: DynamicRule) -> str:
        """Why a weight of this node cannot be stored as integers, or the empty string."""
        for weight in rule.weights:
            value = node.inputs[weight.slot] if weight.slot < len(node.inputs) else None
            if value is None:
                return "a weight that it needs is absent"
            if not value.is_initializer() or value.const_value is None or value.is_graph_input():
                return f"its weight '{value.name}' is computed at run time"
            if value.dtype is None or value.dtype.name != "FLOAT":
                kind = "unknown" if value.dtype is None else value.dtype.name.lower()
                return f"its weight '{value.name}' is {kind}, not float32"
            if value.const_value.size == 0:
                return f"its weight '{value.name}' is empty"
            if self.qconfig.for_tensor(value_name(value)) is None:
                return f"the qconfig leaves tensor '{value.name}' in float"
        return ""

    def _observer(self, value: ir.Value, entry: QConfigDynamic) -> ObserverSpec:
        named = self.qconfig.for_tensor(value_name(value))
        return named if isinstance(named, ObserverSpec) else entry.weight_observer

    # --- which form

    def _choose(
        self, node: ir.Node, rule: DynamicRule, entry: QConfigDynamic
    ) -> DynamicForm | Float:
        """The form that the qconfig names, else the fastest; or why none."""
        dtype = self._dtype(node, rule, entry)
        if isinstance(dtype, Float):
            return dtype
        wanted = DynamicForm.HALF if dtype is None else entry.form
        if wanted is not None:
            return self._named(node, rule, wanted, dtype)
        assert dtype is not None
        forms = [f for f in rule.forms if self._suits(f, node, rule, dtype)]
        if not forms:
            return Float(f"none of its forms ({_names(rule.forms)}) has {dtype} weights")
        gains = {form: self._gain(node, rule, form, dtype) for form in forms}
        known = {form: gain for form, gain in gains.items() if gain is not None}
        best = max(known, key=lambda form: known[form]) if known else forms[0]
        if self.objective is Objective.SPEED and known.get(best, AS_FAST) < AS_FAST:
            self.slower.append(node_name(node))
            return Float(
                f"on {self.target} it would run at {known[best]:.2f} of its float speed "
                f"(form '{best.value}'); objective 'size' quantizes it all the same"
            )
        return best

    def _named(
        self, node: ir.Node, rule: DynamicRule, form: DynamicForm, dtype: QDType | None
    ) -> DynamicForm | Float:
        """The form, or why this node does not have it."""
        if form not in rule.forms:
            return Float(f"it has no form '{form.value}'; it has {_names(rule.forms)}")
        if dtype is None and form is not DynamicForm.HALF:
            raise QConfigError(
                f"'{node.name}': the qconfig names form '{form.value}' and float16 weights, which "
                "only the form 'half' has. Leave one of the two out."
            )
        if form is not DynamicForm.HALF and dtype is not None:
            if form is DynamicForm.INTEGER and dtype.bits != BYTE:
                raise QConfigError(
                    f"'{node.name}': the qconfig names form 'integer' and {dtype} weights; integer "
                    "products exist for int8 and uint8. Name form 'blocks', or none."
                )
            if not self._suits(form, node, rule, dtype):
                return Float(f"its weight is no matrix, which form '{form.value}' needs")
        return form

    def _suits(self, form: DynamicForm, node: ir.Node, rule: DynamicRule, dtype: QDType) -> bool:
        """Whether integer weights of that type can have the form."""
        if form is DynamicForm.BLOCKS:
            values = [(node.inputs[weight.slot], weight) for weight in rule.weights]
            return all(v is not None and can_be_in_blocks(v, weight) for v, weight in values)
        if form is DynamicForm.INTEGER:
            return dtype.bits == BYTE
        return form is not DynamicForm.HALF

    def _dtype(
        self, node: ir.Node, rule: DynamicRule, entry: QConfigDynamic
    ) -> QDType | Float | None:
        """The type of the weights' codes, one for all; None for float16."""
        values = [node.inputs[weight.slot] for weight in rule.weights]
        specs = [self._observer(v, entry) for v in values if v is not None]
        found = {_stored_type(spec) for spec in specs}
        if len(found) > 1:
            kinds = ", ".join(sorted("float16" if t is None else t.name for t in found))
            return Float(f"the qconfig gives its weights different types: {kinds}")
        return found.pop()

    def _gain(
        self, node: ir.Node, rule: DynamicRule, form: DynamicForm, dtype: QDType
    ) -> float | None:
        """Time in float / time in that form, as the target has it for such a shape."""
        k, n = _matrix(node, rule)
        return self.target.dynamic_gain(
            node.op_type, form.value, dtype.bits, k, n, _rows(node, rule)
        )

    def _block_size(self, entry: QConfigDynamic) -> int:
        return BLOCK_SIZE if entry.block_size is None else entry.block_size


def _stored_type(spec: ObserverSpec) -> QDType | None:
    """The type of the codes; None where the observer stores float16.

    Raises:
        QConfigError: a type that is neither.
    """
    dtype = spec().dtype
    if spec.name == "NoopObserver":
        return None
    if not dtype.is_integer or dtype.bits > BYTE:
        raise QConfigError(
            f"{spec.name}: dynamic quantization stores weights in 2, 4 or 8 bits, or as float16; "
            f"got {dtype}."
        )
    return dtype


def _matrix(node: ir.Node, rule: DynamicRule) -> tuple[int, int]:
    """(k, n) of the first weight: numbers summed per result, results; at least 1 each."""
    weight = rule.weights[0]
    value = node.inputs[weight.slot]
    assert value is not None
    assert value.const_value is not None
    shape = tuple(value.const_value.shape.numpy())
    n = shape[weight.axis] if weight.axis is not None and shape else 1
    return max(math.prod(shape) // max(n, 1), 1), max(n, 1)


def _rows(node: ir.Node, rule: DynamicRule) -> int | None:
    """Rows of the activation, its elements without the last axis; None if not known."""
    weights = {weight.slot for weight in rule.weights}
    slot = next((s for s, v in enumerate(node.inputs) if v is not None and s not in weights), None)
    value = None if slot is None else node.inputs[slot]
    if value is None or value.shape is None:
        return None
    rows = [size for size in value.shape[:-1] if isinstance(size, int)]
    return math.prod(rows) if len(rows) == max(len(value.shape) - 1, 0) else None


def _names(forms: Sequence[DynamicForm]) -> str:
    return ", ".join(f"'{form.value}'" for form in forms)


def _how(form: DynamicForm, weights: Sequence[DynamicWeightPlan]) -> str:
    """In words, what becomes of the node."""
    if form is DynamicForm.HALF:
        return "float16 weights, computed in float32"
    qparams = weights[0].qparams
    assert qparams is not None
    limit = weights[0].code_limit
    within = f" within +-{limit}" if qparams.dtype == INT8 and limit is not None else ""
    if form is DynamicForm.INTEGER:
        return f"{qparams.dtype} weights{within}, activations quantized at run time"
    if form is DynamicForm.BLOCKS:
        size = getattr(qparams.granularity, "size", "?")
        return f"{qparams.dtype} weights{within} in blocks of {size}, computed in float32"
    return f"{qparams.dtype} weights{within} in the file, computed in float32"
