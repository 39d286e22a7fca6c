"""Which nodes could run in integers, each looked at alone, and what folds into them."""

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.catalog import has_dynamic_quantization
from onnxq.core.reason import Reason
from onnxq.dtypes import INT8, UINT8, in_bytes
from onnxq.graph.edit import sole_reader
from onnxq.graph.prequantized_weights import stores_groups
from onnxq.graph.walk import node_name, op_label, value_name
from onnxq.operator import Float, OpCategory, Precision, Rule
from onnxq.operator.nodes import find_input
from onnxq.operator.reasons import (
    ComputedAtRunTime,
    InGroupsAlready,
    LeftByRequest,
    OperatorLimit,
    TensorLeftByRequest,
)
from onnxq.ort import facts
from onnxq.ort.version import OLDEST
from onnxq.qconfig import Entry, QConfigDynamic, QConfigMapping
from onnxq.static import reasons
from onnxq.static.insertion.context import Context
from onnxq.static.insertion.decision import weight_observer
from onnxq.targets import Target

MATRIX = 2  # rank of B where MatMul + Add counts as a biased MatMul
UNBOUNDED = (float("-inf"), float("inf"))


@dataclass(slots=True)
class Candidate:
    """A node that could run in integers, with the nodes folded into it.

    Attributes:
        folded: nodes that its integer kernel carries out too, in graph order.
        needs_output: ONNX Runtime has the integer kernel only with a Q behind the result.
        clamp: real bounds of the folded Relu and Clip nodes.
    """

    node: ir.Node
    rule: Rule
    results: list[ir.Value]
    folded: list[tuple[ir.Node, Rule]]
    needs_output: bool
    clamp: tuple[float, float] = UNBOUNDED


def find_candidates(
    context: Context, qconfig: QConfigMapping
) -> tuple[dict[ir.Node, Candidate], dict[ir.Node, Float]]:
    """(nodes that could run in integers, others with the reason); folded nodes are in neither."""
    candidates: dict[ir.Node, Candidate] = {}
    floats: dict[ir.Node, Float] = {}
    for node, loop in context.order:
        left = alone(context, node, loop, qconfig)
        if left is not None:
            floats[node] = left[1]
        elif (rule := context.rules.find(node)) is not None:
            outputs = [node.outputs[slot] for slot in rule.outputs]
            candidates[node] = Candidate(node, rule, outputs, [], rule.needs_output)
    for candidate in list(candidates.values()):
        if candidate.node in candidates:
            _fold(candidate, candidates, qconfig)
    return candidates, floats


def _has_float_result(candidate: Candidate, qconfig: QConfigMapping) -> bool:
    """Whether no Q may stand behind it, which a Relu or Clip that is folded into a node needs."""
    node = candidate.node
    entry = qconfig.for_node(node_name(node), node.op_type)
    asked = entry is not None and entry.precision is Precision.INT8_FLOAT_OUTPUT
    return asked and not candidate.rule.needs_output


@dataclass(frozen=True, slots=True)
class _Node:
    """A node alone.

    Attributes:
        verdict: the rule of its operator, or why that leaves it in float; None: no operator.
        entry: of the qconfig; None: the qconfig leaves it in float.
    """

    node: ir.Node
    loop: str | None
    verdict: Rule | Float | None
    entry: Entry
    qconfig: QConfigMapping
    target: Target

    @property
    def rule(self) -> Rule:
        """Rule of its operator, which by_operator_rule has seen to be one."""
        assert isinstance(self.verdict, Rule)
        return self.verdict


def by_dynamic_request(at: _Node) -> Reason | None:
    """Leaves to dynamic quantization what the qconfig wants so."""
    if not isinstance(at.entry, QConfigDynamic):
        return None
    is_possible = has_dynamic_quantization(at.node)
    return reasons.QuantizedAtRunTime() if is_possible else reasons.NoDynamicForm(op_label(at.node))


def by_loop(at: _Node) -> Reason | None:
    """Leaves bodies of loops in float."""
    return None if at.loop is None else reasons.InLoopBody(at.loop)


def by_operator(at: _Node) -> Reason | None:
    """Leaves in float what has no integer form."""
    if at.verdict is not None:
        return None
    if stores_groups(at.node):
        return InGroupsAlready()
    return reasons.NoIntegerForm(op_label(at.node), _floats_around(at.node))


def by_request(at: _Node) -> Reason | None:
    """Leaves in float what the qconfig wants so."""
    is_float = at.entry is None or at.entry.precision is Precision.FLOAT
    return LeftByRequest() if is_float else None


def by_operator_rule(at: _Node) -> Reason | None:
    """Leaves in float what its operator says no scale or kernel fits."""
    return at.verdict.reason if isinstance(at.verdict, Float) else None


def by_tensors(at: _Node) -> Reason | None:
    """Leaves a node in float where one of its tensors cannot be quantized."""
    node, rule, qconfig = at.node, at.rule, at.qconfig
    tensors = [node.inputs[slot] for slot in rule.activations if slot < len(node.inputs)]
    tensors += [node.outputs[slot] for slot in rule.outputs if slot < len(node.outputs)]
    for value in tensors:
        if value is None:
            return reasons.AbsentInput()
        if reason := _why_no_floats(value):
            return reason
        if qconfig.for_tensor(value_name(value)) is None:
            return TensorLeftByRequest(value_name(value))
    weight = None if rule.weight is None else find_input(node, rule.weight.slot)
    bias = None if rule.bias is None else find_input(node, rule.bias)
    for value in (bias, weight):
        if value is not None and qconfig.for_tensor(value_name(value)) is None:
            return TensorLeftByRequest(value_name(value))
    for what, value in (("weight", weight), ("bias", bias)):
        if value is not None and not value.is_initializer():
            return ComputedAtRunTime(what, value_name(value))
        if value is not None and _is_empty(value):
            return reasons.EmptyConstant(what, value_name(value))
    return None


def by_integer_types(at: _Node) -> Reason | None:
    """Leaves in float what onnxq itself writes and has no kernel for the types asked for.

    The QDQ format of such types runs in float, and what moves data is refused (see check_types).
    """
    node, rule, qconfig = at.node, at.rule, at.qconfig
    entry = qconfig.for_node(node_name(node), node.op_type)
    if not rule.lowered or rule.category not in (OpCategory.COMPUTE, OpCategory.ELEMENTWISE):
        return None
    assert entry is not None, "asked before"
    x = entry.activation_observer().dtype
    # int8 activations are stored as uint8 beside uint8 weights (see inserted.py)
    pairs = {(UINT8, UINT8), (UINT8, INT8), (INT8, INT8), (INT8, UINT8)}
    w = INT8 if rule.weight is None else weight_observer(node, rule, qconfig)().dtype
    if (x, in_bytes(w)) in pairs:
        return None
    return reasons.NoKernelForTypes(str(x), "" if rule.weight is None else str(w))


def by_default(at: _Node) -> Reason | None:
    """Leaves in float what is slow, or has no kernel, unless the qconfig names it."""
    node, rule, qconfig = at.node, at.rule, at.qconfig
    if qconfig.explicit_for_node(node_name(node), node.op_type):
        return None
    if rule.named_only:
        return reasons.UnlessNamed(OperatorLimit(rule.named_only))
    if missing := _missing_kernel(node, rule, qconfig):
        return reasons.UnlessNamed(missing)
    if rule.precision is Precision.FLOAT_BETWEEN_QDQ:
        return reasons.ConversionsAlone(len(_varying(node, rule)) + len(rule.outputs))
    ratio = at.target.slow_in_integers.get(node.op_type)
    if ratio is None:
        return None
    return reasons.UnlessNamed(reasons.SlowInIntegers(op_label(node), ratio))


ALONE: tuple[Callable[[_Node], Reason | None], ...] = (
    by_dynamic_request,
    by_loop,
    by_operator,
    by_request,
    by_operator_rule,
    by_tensors,
    by_integer_types,
    by_default,
)
"""Deciders that look at one node alone: each says why it stays in float, or None."""


def alone(
    context: Context, node: ir.Node, loop: str | None, qconfig: QConfigMapping
) -> tuple[str, Float] | None:
    """(the first decider of ALONE that has something to say of the node, its Float), or None."""
    entry = qconfig.entry_for_node(node_name(node), node.op_type)
    at = _Node(node, loop, context.rules.verdict(node), entry, qconfig, context.target)
    for decide in ALONE:
        reason = decide(at)
        if reason is not None:
            return decide.__name__, Float(reason)
    return None


def _varying(node: ir.Node, rule: Rule) -> list[ir.Value]:
    """Activations that the node would read in integers and that are no constants."""
    values = dict.fromkeys(find_input(node, slot) for slot in rule.activations)
    return [v for v in values if v is not None and not v.is_initializer()]


def _floats_around(node: ir.Node) -> int:
    """How many floats it reads and gives that integers would have to be converted from and to."""
    inputs = {v for v in node.inputs if v is not None and not v.is_initializer()}
    return sum(v.dtype == ir.DataType.FLOAT for v in (*inputs, *node.outputs))


def _why_no_floats(value: ir.Value) -> Reason | None:
    """Why the value is not known to be a tensor of float32, or None."""
    if value.type is None or value.dtype is None:
        return reasons.UnknownType(value_name(value))
    if not isinstance(value.type, ir.TensorType):  # it has the dtype of what it holds
        return reasons.NotATensor(value_name(value))
    if value.dtype != ir.DataType.FLOAT:
        return reasons.NotFloat32(value.dtype.name.lower())
    return reasons.EmptyTensor(value_name(value)) if _is_empty(value) else None


def _is_empty(value: ir.Value) -> bool:
    return value.shape is not None and 0 in value.shape


def _missing_kernel(node: ir.Node, rule: Rule, qconfig: QConfigMapping) -> Reason | None:
    """The kernel that the oldest ONNX Runtime lacks which files are written for, if one."""
    entry = qconfig.for_node(node_name(node), node.op_type)
    if not rule.lowered or rule.category not in (OpCategory.MOVEMENT, OpCategory.CLAMP):
        return None
    assert entry is not None, "asked before"
    x = entry.activation_observer().dtype
    if ir.DataType[x.onnx] not in facts.of(node, OLDEST).lacks:
        return None
    return reasons.KernelMissing(".".join(map(str, OLDEST)), node.op_type, str(x))


def _only_reader(value: ir.Value) -> ir.Node | None:
    """The one node that reads the value, in the value's own graph; None if there are others."""
    reader, producer = sole_reader(value), value.producer()
    if reader is None or producer is None or reader.graph is not producer.graph:
        return None
    return reader


def _fold(
    candidate: Candidate, candidates: dict[ir.Node, Candidate], qconfig: QConfigMapping
) -> None:
    """Folds a vector bias behind a MatMul, then Relu and Clip, into the node that feeds them."""
    rule = candidate.rule
    if len(candidate.results) != 1 or rule.shares_qparams:
        return
    if rule.category not in (OpCategory.COMPUTE, OpCategory.ELEMENTWISE):
        return
    if rule.category is OpCategory.COMPUTE and rule.bias is None:
        _fold_bias(candidate, candidates)
    if not _has_float_result(candidate, qconfig):
        _fold_clamps(candidate, candidates)


def _fold_bias(candidate: Candidate, candidates: dict[ir.Node, Candidate]) -> None:
    """MatMul -> Add(vector): one layer with a bias; one Q behind the Add if it gives integers."""
    reader = _only_reader(candidate.results[0])
    if reader is None or reader.op_type != "Add" or reader not in candidates:
        return
    others = [v for v in reader.inputs if v is not candidate.results[0]]
    if len(others) != 1 or others[0] is None or not others[0].is_initializer():
        return
    weight = candidate.node.inputs[1]
    if weight is None or not weight.is_initializer() or not _is_bias(others[0], weight):
        return
    candidate.folded.append((reader, candidates.pop(reader).rule))
    candidate.results = [reader.outputs[0]]


def _is_bias(value: ir.Value, weight: ir.Value) -> bool:
    """Whether ONNX Runtime's MatMul takes the value along: one number for each column of B."""
    if value.shape is None or weight.shape is None or len(weight.shape) != MATRIX:
        return False
    return value.shape.dims == weight.shape.dims[1:]


def _fold_clamps(candidate: Candidate, candidates: dict[ir.Node, Candidate]) -> None:
    """Relu and Clip become bounds of integers: saturation to uint8 with zero_point 0 is a Relu."""
    while (reader := _only_reader(candidate.results[0])) is not None:
        following = candidates.get(reader)
        if following is None or following.rule.clamp is None:
            return
        (low, high), (next_low, next_high) = candidate.clamp, following.rule.clamp
        low, high = (min(max(bound, next_low), next_high) for bound in (low, high))
        candidate.clamp = (low, high)
        candidate.folded.append((reader, candidates.pop(reader).rule))
        candidate.results = [reader.outputs[0]]
        candidate.needs_output = True
