"""Which nodes ONNX Runtime fuses with the DequantizeLinear and QuantizeLinear around them.

What is not certain to be fused is kept as it is: ONNX Runtime then treats it in the fused graph as
it does in the QDQ graph, so that both give the same integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import catalog
from onnxq.graph.walk import is_read
from onnxq.graph.weights import constant
from onnxq.operator import Float, NodePlan, OpCategory, Operator, Rule, WeightSlot
from onnxq.qdq.fuse.fusion import Fusion, Kept
from onnxq.qdq.fuse.results import goes_to_quantize, results_of
from onnxq.qdq.fuse.scales import KERNEL_TYPES
from onnxq.qdq.fuse.signed import why_not_fused
from onnxq.qdq.fuse.taken_bias import take_bias
from onnxq.qdq.fuse.view import float_view
from onnxq.qdq.read import Unread, from_dequantize, is_float, zero_point_of
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.qdq.fuse.scales import Scales

NEEDS_ZERO_POINTS = frozenset({"Gemm"})  # measured; others are fused without them, too


def judge(node: ir.Node, scales: Scales) -> Fusion | Kept | None:
    """Verdict on the node; None where it is not between DQ and Q."""
    if not any(v is not None and from_dequantize(v, node) for v in node.inputs):
        return None
    operator = catalog.find(node.op_type, node.domain)
    if operator is None:
        return _kept(node, f"onnxq has no integer form of {node.op_type}")
    view = float_view(node, scales)
    rule = operator.fused_rule(view)
    if isinstance(rule, Float):
        return _kept(node, rule.reason.words)
    found = site(node, node, list(node.inputs), operator, view, rule, scales)
    return _kept(node, found.reason) if isinstance(found, Kept) else found


def _kept(node: ir.Node, reason: str) -> Kept | None:
    """The reason, where the node is between DequantizeLinear and QuantizeLinear."""
    for value in node.inputs:
        if value is None or not is_float(value) or constant(value) is not None:
            continue
        if not from_dequantize(value, node):
            return None
    used = [v for v in node.outputs if is_read(v)]
    if used and all(goes_to_quantize(v, node) for v in used):
        return Kept(reason)
    return None


def site(
    node: ir.Node,
    tail: ir.Node,
    inputs: list[ir.Value | None],
    operator: Operator,
    view: ir.Node,
    rule: Rule,
    scales: Scales,
) -> Fusion | Kept:
    """The Fusion of what reads `inputs` and gives the tail's outputs, or why there is none."""
    reason = _never_fused(operator, rule)
    if reason:
        return Kept(reason)
    integers = list(inputs)
    found = _qparams_of_inputs(node, integers, view, rule, scales)
    if isinstance(found, Kept):
        return found
    results = results_of(tail, rule, scales)
    if isinstance(results, Kept):
        return results
    plan = NodePlan(tuple(found), tuple(results.qparams))
    if _moves_between_scales(rule, plan):
        return Kept("it moves integers, but its input and its output have different qparams")
    reason = why_not_fused(operator.op_type, rule, plan, scales.int8) or _missing(
        operator, inputs, rule
    )
    if reason:
        return Kept(reason)
    made = Fusion(
        node, tail, operator, view, rule, plan, integers, results.quantizers, results.absorbed
    )
    reason = take_bias(made, scales)
    return Kept(reason) if reason else made


def _never_fused(operator: Operator, rule: Rule) -> str:
    """Why a node with this rule is never computed on integers, or the empty string."""
    if not operator.has_lowering():
        return f"onnxq has no integer lowering of {operator.op_type} yet"
    if rule.lowered and rule.category not in (OpCategory.MOVEMENT, OpCategory.CLAMP):
        return f"ONNX Runtime does not fuse {operator.op_type}; it computes in float32"
    return ""


def _moves_between_scales(rule: Rule, plan: NodePlan) -> bool:
    """Whether integers would be copied between tensors of different qparams.

    Where several inputs meet and ONNX Runtime fuses (Concat, Where), its kernel requantizes.
    """
    if not rule.shares_qparams and rule.clamp is None:
        return False
    if rule.is_fused and len(rule.activations) > 1:
        return False
    first = plan.inputs[rule.activations[0]]
    every = [plan.inputs[slot] for slot in rule.activations]
    return any(p != first for p in [*every, *(plan.outputs[slot] for slot in rule.outputs)])


def _qparams_of_inputs(
    node: ir.Node, inputs: list[ir.Value | None], view: ir.Node, rule: Rule, scales: Scales
) -> list[QParams | None] | Kept:
    """Qparams per slot, integers put into `inputs`; or why an input has none that suit."""
    found: list[QParams | None] = [None] * len(inputs)
    weight_slots = () if rule.weight is None else (rule.weight.slot,)
    for slot in (*rule.activations, *weight_slots):
        if slot in weight_slots and constant(inputs[slot]) is not None:
            return Kept("its weight is float; ONNX Runtime quantizes it when it loads the model")
        reason = _take_integers(node, slot, inputs, found, scales)
        if reason:
            return Kept(reason)
    for slot in rule.activations:
        qparams = found[slot]
        if qparams is None or qparams.granularity != PerTensor():
            return Kept(f"input {slot} has one scale per channel; one for the tensor is wanted")
    if rule.weight is not None and not _suits(found[rule.weight.slot], rule.weight, view):
        return Kept("its weight's scales are not one per output channel")
    return found


def _take_integers(
    node: ir.Node,
    slot: int,
    inputs: list[ir.Value | None],
    found: list[QParams | None],
    scales: Scales,
) -> str:
    """Puts integers and qparams into the slot; the reason where there are none."""
    value = inputs[slot] if slot < len(inputs) else None
    if value is None or not from_dequantize(value, node):
        return f"input {slot} is float"
    producer = value.producer()
    assert producer is not None, "from_dequantize looked"
    qparams = scales.of(producer)
    if isinstance(qparams, Unread):
        return f"input {slot}: {qparams.reason}"
    if qparams.dtype.name not in KERNEL_TYPES:
        return f"input {slot} is {qparams.dtype}; integer kernels take uint8 and int8"
    inputs[slot], found[slot] = producer.inputs[0], qparams
    return ""


def _missing(operator: Operator, inputs: list[ir.Value | None], rule: Rule) -> str:
    """Why absent zero points keep a node from being fused, or the empty string."""
    slots = {*rule.activations, *(() if rule.weight is None else (rule.weight.slot,))}
    if operator.op_type not in NEEDS_ZERO_POINTS:
        return ""
    for slot in slots:
        value = inputs[slot]
        producer = None if value is None else value.producer()
        if producer is not None and zero_point_of(producer) is None:
            return f"input {slot} has no zero point: ONNX Runtime leaves it in float32"
    return ""


def _suits(qparams: QParams | None, weight: WeightSlot, view: ir.Node) -> bool:
    """Whether a weight has one scale, or one per entry of its axis."""
    if qparams is None or not isinstance(qparams.granularity, PerChannel):
        return qparams is not None
    value = view.inputs[weight.slot]
    rank = len(value.shape) if value is not None and value.shape is not None else 0
    return bool(rank) and qparams.granularity.axis % rank == weight.axis
