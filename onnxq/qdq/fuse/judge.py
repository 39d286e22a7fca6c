"""Which nodes ONNX Runtime fuses with the DequantizeLinear and QuantizeLinear around them.

What is not certain to be fused is kept as it is: ONNX Runtime then treats it in the fused graph as
it does in the QDQ graph, so that both give the same integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.core.arrays import Singles
from onnxq.dtypes import INT32
from onnxq.graph.edit import sole_reader, sole_user
from onnxq.graph.walk import is_read
from onnxq.graph.weights import constant
from onnxq.operator import Float, NodePlan, OpCategory, Operator, Rule, WeightSlot
from onnxq.ort import facts
from onnxq.qdq import read
from onnxq.qdq.fuse.fusion import Fusion, Kept
from onnxq.qdq.fuse.scales import KERNEL_TYPES, Scales, float_view
from onnxq.qdq.fuse.signed import why_not_fused
from onnxq.qparams import PerChannel, PerTensor, QParams

NEEDS_ZERO_POINTS = frozenset({"Gemm"})  # measured; others are fused without them, too


def judge(node: ir.Node, scales: Scales) -> Fusion | Kept | None:
    """Verdict on the node; None where it is not between DQ and Q."""
    if not any(v is not None and read.from_dequantize(v, node) for v in node.inputs):
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
        if value is None or not read.is_float(value) or constant(value) is not None:
            continue
        if not read.from_dequantize(value, node):
            return None
    used = [v for v in node.outputs if is_read(v)]
    if used and all(is_only_quantized(v, node) for v in used):
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
    if value is None or not read.from_dequantize(value, node):
        return f"input {slot} is float"
    producer = value.producer()
    assert producer is not None, "from_dequantize looked"
    qparams = scales.of(producer)
    if isinstance(qparams, read.Unread):
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
        if producer is not None and read.zero_point_of(producer) is None:
            return f"input {slot} has no zero point: ONNX Runtime leaves it in float32"
    return ""


def _suits(qparams: QParams | None, weight: WeightSlot, view: ir.Node) -> bool:
    """Whether a weight has one scale, or one per entry of its axis."""
    if qparams is None or not isinstance(qparams.granularity, PerChannel):
        return qparams is not None
    value = view.inputs[weight.slot]
    rank = len(value.shape) if value is not None and value.shape is not None else 0
    return bool(rank) and qparams.granularity.axis % rank == weight.axis


# --- Results of a node: what quantizes them, and what stands between


@dataclass(slots=True)
class Results:
    """Quantizers of the results of a node.

    Attributes:
        qparams: per output slot; None where the result stays in float32.
        absorbed: Relu or Clip nodes between, which the integers' range makes redundant.
    """

    qparams: list[QParams | None]
    quantizers: dict[int, list[ir.Node]] = field(default_factory=dict)
    absorbed: list[ir.Node] = field(default_factory=list)


READ_IN_FLOAT = Kept("its result is read in float32 too, or not quantized at all")


def results_of(node: ir.Node, rule: Rule, scales: Scales) -> Results | Kept:
    """The Results, or why the node cannot give integers."""
    results = Results([None] * len(node.outputs))
    for slot in rule.outputs:
        value = node.outputs[slot]
        clamp = _only_clamp(value, node)
        if clamp is not None and not rule.shares_qparams and rule.clamp is None:
            value = clamp.outputs[0]
        quantizing = [r for r in value.consumers() if read.is_quantize(r) and r.graph is node.graph]
        if clamp is None and not quantizing and not rule.needs_output:
            continue
        is_given = node.outputs[slot].is_graph_output()
        qparams = READ_IN_FLOAT if is_given else _qparams_behind(value, quantizing, scales)
        if isinstance(qparams, Kept):
            return qparams
        if clamp is not None and value is clamp.outputs[0]:
            if not _redundant(clamp, quantizing[0], qparams):
                return Kept(f"{clamp.op_type} behind it bounds more than its integers do")
            results.absorbed.append(clamp)
        if qparams.dtype.name not in KERNEL_TYPES or qparams.granularity != PerTensor():
            return Kept(f"its result is {qparams.dtype}, or has one scale per channel")
        results.quantizers[slot], results.qparams[slot] = quantizing, qparams
    return results


def _qparams_behind(
    value: ir.Value, quantizing: Sequence[ir.Node], scales: Scales
) -> QParams | Kept:
    """The one QParams that all readers of the value quantize it with, or why there is none."""
    if not quantizing or len(quantizing) < len(value.consumers()) or value.is_graph_output():
        return READ_IN_FLOAT
    found = [scales.of(quantizer) for quantizer in quantizing]
    qparams = found[0]
    if isinstance(qparams, read.Unread):
        return Kept(f"its result is quantized: {qparams.reason}")
    if any(other != qparams for other in found):
        return Kept("its result is quantized in more than one way")
    return qparams


def _only_clamp(value: ir.Value, node: ir.Node) -> ir.Node | None:
    """Relu or Clip that alone reads the value and has one reader itself, as ONNX Runtime asks.

    The value may be an output of the graph, too; its node computes in float32 then.
    """
    reader = sole_user(value)
    if reader is None or not facts.of(reader).swallowed or reader.graph is not node.graph:
        return None
    return None if sole_reader(reader.outputs[0]) is None else reader


def _redundant(clamp: ir.Node, quantize: ir.Node, qparams: QParams) -> bool:
    """Whether saturation to the integers' type does what the Relu or Clip does (or nearly so).

    rint(bound / scale) + zero_point is compared with the ends of the type, as ONNX Runtime does,
    for a Clip where scale and zero point have rank 0.
    """
    rule = catalog.rule_of(float_view(clamp, Scales()))
    if rule is None or rule.clamp is None:
        return False
    zero_point, dtype = int(qparams.zero_point), qparams.dtype
    if clamp.op_type == "Relu":
        return zero_point == dtype.qmin
    if any(v is not None and v.shape is not None and len(v.shape) for v in quantize.inputs[1:]):
        return False
    low, high = (np.rint(np.float32(bound) / qparams.scale) for bound in rule.clamp)
    if not (np.isfinite(low) and np.isfinite(high)) or max(-low, high) >= 2**31:
        return False  # ONNX Runtime casts these to int32: what that gives depends on the CPU
    return int(low) + zero_point <= dtype.qmin and int(high) + zero_point >= dtype.qmax


def is_only_quantized(value: ir.Value, node: ir.Node) -> bool:
    """Whether only Q nodes read the value, directly or behind a Relu or Clip."""
    clamp = _only_clamp(value, node)
    readers = [use.node for use in (clamp.outputs[0] if clamp else value).uses()]
    return bool(readers) and not value.is_graph_output() and all(map(read.is_quantize, readers))


# --- The bias of a node on integers: int32 already, or a float vector that ONNX Runtime
#     quantizes


BIAS_SCALE_TOLERANCE = 0.01  # ONNX Runtime takes a bias whose scale is that near x_scale * w_scale
UNCHECKED = frozenset({"Gemm"})
"""Operators whose int32 bias it takes for one of x_scale * w_scale, whatever its own scale says."""


def take_bias(made: Fusion, scales: Scales) -> str:
    """Puts int32 integers of a bias in place; the reason where that cannot be done."""
    slot = made.rule.bias
    value = None if slot is None or slot >= len(made.inputs) else made.inputs[slot]
    if slot is None or value is None:
        return ""
    weight = made.rule.weight
    x = made.plan.inputs[made.rule.activations[0]]
    w = None if weight is None else made.plan.inputs[weight.slot]
    assert x is not None, "activations have qparams"
    assert w is not None, "a rule with a bias has a weight"
    with np.errstate(under="ignore"):
        wanted = np.asarray(x.scale * w.scale)
    producer = value.producer()
    if producer is not None and read.from_dequantize(value, made.node):
        return _take_integer_bias(made, slot, producer, wanted, scales)
    tensor = constant(value)
    if tensor is None or tensor.dtype.name != "FLOAT" or len(tensor.shape) != 1:
        return "its bias is float, and no constant vector"
    if wanted.ndim and wanted.shape != tuple(tensor.shape):
        return "its bias is float, and its weight has another number of scales"
    if not made.quantizers:
        return "its bias is float and its result not quantized: ONNX Runtime leaves it in float32"
    with np.errstate(all="ignore"):
        integers = np.rint(np.asarray(tensor.numpy() / wanted, np.float32))
    if not np.all(np.abs(integers) < 2**31):
        return "its bias does not fit into int32"
    made.new_bias = slot, integers.astype(np.int32)
    return ""


def _take_integer_bias(
    made: Fusion, slot: int, dequantize: ir.Node, wanted: Singles, scales: Scales
) -> str:
    """Puts the integers of a DequantizeLinear in place; the reason where that cannot be done."""
    if made.operator.op_type in UNCHECKED:
        if read.integer_type(dequantize) is not ir.DataType.INT32:
            return "its bias is not int32"
        made.inputs[slot] = dequantize.inputs[0]
        return ""
    qparams = scales.of(dequantize)
    if isinstance(qparams, read.Unread) or qparams.dtype != INT32 or qparams.zero_point.any():
        return "its bias is not int32 with constant scales and zero point 0"
    if not np.allclose(qparams.scale, wanted, rtol=BIAS_SCALE_TOLERANCE, atol=0):
        return "the scale of its bias is not the product of the scales of input and weight"
    made.inputs[slot] = dequantize.inputs[0]
    return ""
