"""Which nodes ONNX Runtime fuses with the DequantizeLinear and QuantizeLinear around them.

What is not certain to be fused is kept as it is: ONNX Runtime then treats it in the fused graph as
it does in the QDQ graph, so that both give the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.graph.fuse.scales import is_dequantize, is_quantize
from onnxq.graph.fuse.signed import why_not_fused
from onnxq.graph.fuse.view import float_view
from onnxq.graph.weights import constant
from onnxq.operator import Float, Form, NodePlan, Operator, Role, Rule, WeightSlot
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.graph.fuse.scales import Scales

NEEDS_ZERO_POINTS = frozenset({"Gemm"})  # measured; others are fused without them, too
CODES = ("uint8", "int8")  # the types that ONNX Runtime's integer kernels exist for


@dataclass(frozen=True, slots=True)
class Flattened:
    """Batches of matrices as one matrix, and the shape that the result gets back."""

    matrix: tuple[int, int]
    result: tuple[int, ...]


@dataclass(slots=True)
class Site:
    """A node that computes on codes, and what it takes along.

    Attributes:
        node: between DequantizeLinear and QuantizeLinear.
        tail: the node whose outputs it gives: itself, or an Add that brings its bias.
        operator: of the node, or of what ONNX Runtime makes of it.
        view: the node as the float model has it.
        plan: qparams per slot.
        inputs: codes per slot, or the value as it is.
        quantizers: per output slot the QuantizeLinear nodes, all alike, whose codes it gives.
        absorbed: nodes between it and its quantizers that it carries out.
        new_bias: an int32 bias that has to be written, with its slot.
        flattened: the shapes where its first input is made a matrix; None: it is not.
    """

    node: ir.Node
    tail: ir.Node
    operator: Operator
    view: ir.Node
    rule: Rule
    plan: NodePlan
    inputs: list[ir.Value | None]
    quantizers: dict[int, list[ir.Node]]
    absorbed: list[ir.Node] = field(default_factory=list)
    new_bias: tuple[int, npt.NDArray[np.int32]] | None = None
    flattened: Flattened | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a node stays between DequantizeLinear and QuantizeLinear."""

    reason: str


def judge(node: ir.Node, scales: Scales) -> Site | Kept | None:
    """What becomes of the node; None where it is not between DQ and Q."""
    if not any(v is not None and from_dequantize(v, node) for v in node.inputs):
        return None
    operator = catalog.find(node.op_type, node.domain)
    if operator is None:
        return _kept(node, f"onnxq has no integer form of {node.op_type}")
    view = float_view(node, scales)
    rule = operator.rule(view)
    if isinstance(rule, Float):
        return _kept(node, rule.reason)
    found = site(node, node, list(node.inputs), operator, view, rule, scales)
    return _kept(node, found.reason) if isinstance(found, Kept) else found


def _kept(node: ir.Node, reason: str) -> Kept | None:
    """The reason, where the node is between DequantizeLinear and QuantizeLinear."""
    for value in node.inputs:
        if value is None or not _is_float(value) or constant(value) is not None:
            continue
        if not from_dequantize(value, node):
            return None
    used = [v for v in node.outputs if v.uses() or v.is_graph_output()]
    if used and all(_goes_to_quantize(v, node) for v in used):
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
) -> Site | Kept:
    """The Site of what reads `inputs` and gives the tail's outputs, or why there is none."""
    reason = _never_fused(operator, rule)
    if reason:
        return Kept(reason)
    codes = list(inputs)
    found = _qparams_of_inputs(node, codes, view, rule, scales)
    if isinstance(found, Kept):
        return found
    results = _results(tail, rule, scales)
    if isinstance(results, Kept):
        return results
    quantizers, outputs, absorbed = results
    plan = NodePlan(tuple(found), tuple(outputs))
    if _moves_between_scales(rule, plan):
        return Kept("it moves codes, but its input and its output have different qparams")
    reason = why_not_fused(operator.op_type, rule, plan) or _missing(operator, inputs, rule)
    if reason:
        return Kept(reason)
    made = Site(node, tail, operator, view, rule, plan, codes, quantizers, absorbed)
    reason = _take_bias(made, scales)
    return Kept(reason) if reason else made


def _never_fused(operator: Operator, rule: Rule) -> str:
    """Why a node with this rule is never computed on codes, or the empty string."""
    if not operator.has_lowering():
        return f"onnxq has no integer lowering of {operator.op_type} yet"
    if rule.form is Form.CODES and rule.role not in (Role.MOVEMENT, Role.CLAMP):
        return f"ONNX Runtime does not fuse {operator.op_type}; it computes in float32"
    return ""


def _moves_between_scales(rule: Rule, plan: NodePlan) -> bool:
    """Whether codes would be copied between tensors of different qparams.

    Where several inputs meet and ONNX Runtime fuses (Concat, Where), its kernel requantizes.
    """
    if not rule.shares_qparams and rule.clamp is None:
        return False
    if rule.form is Form.QDQ and len(rule.activations) > 1:
        return False
    first = plan.inputs[rule.activations[0]]
    every = [plan.inputs[slot] for slot in rule.activations]
    return any(p != first for p in [*every, *(plan.outputs[slot] for slot in rule.outputs)])


def from_dequantize(value: ir.Value, reader: ir.Node) -> bool:
    """Whether a DQ of the reader's own graph makes it: fusion does not cross graphs."""
    producer = value.producer()
    return producer is not None and is_dequantize(producer) and producer.graph is reader.graph


def _is_float(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()


# --- inputs


def _qparams_of_inputs(
    node: ir.Node, inputs: list[ir.Value | None], view: ir.Node, rule: Rule, scales: Scales
) -> list[QParams | None] | Kept:
    """Qparams per slot, codes put into `inputs`; or why an input has none that suit."""
    found: list[QParams | None] = [None] * len(inputs)
    weight_slots = () if rule.weight is None else (rule.weight.slot,)
    for slot in (*rule.activations, *weight_slots):
        if slot in weight_slots and constant(inputs[slot]) is not None:
            return Kept("its weight is float; ONNX Runtime quantizes it when it loads the model")
        reason = _take_codes(node, slot, inputs, found, scales)
        if reason:
            return Kept(reason)
    for slot in rule.activations:
        qparams = found[slot]
        if qparams is None or qparams.granularity != PerTensor():
            return Kept(f"input {slot} has one scale per channel; one for the tensor is wanted")
    if rule.weight is not None and not _suits(found[rule.weight.slot], rule.weight, view):
        return Kept("its weight's scales are not one per output channel")
    return found


def _take_codes(
    node: ir.Node,
    slot: int,
    inputs: list[ir.Value | None],
    found: list[QParams | None],
    scales: Scales,
) -> str:
    """Puts codes and qparams into the slot; the reason where there are none."""
    value = inputs[slot] if slot < len(inputs) else None
    if value is None or not from_dequantize(value, node):
        return f"input {slot} is float"
    producer = value.producer()
    assert producer is not None, "from_dequantize looked"
    qparams = scales.of(producer)
    if qparams is None:
        return f"the scale of input {slot} is computed at run time, or there is one per block"
    if qparams.dtype.name not in CODES:
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
        if producer is not None and _zero_point(producer) is None:
            return f"input {slot} has no zero point: ONNX Runtime leaves it in float32"
    return ""


def _zero_point(dequantize: ir.Node) -> ir.Value | None:
    return dequantize.inputs[2] if len(dequantize.inputs) > 2 else None


def _suits(qparams: QParams | None, weight: WeightSlot, view: ir.Node) -> bool:
    """Whether a weight has one scale, or one per entry of its axis."""
    if qparams is None or not isinstance(qparams.granularity, PerChannel):
        return qparams is not None
    value = view.inputs[weight.slot]
    rank = len(value.shape) if value is not None and value.shape is not None else 0
    return bool(rank) and qparams.granularity.axis % rank == weight.axis


# --- outputs

_Results = tuple[dict[int, list["ir.Node"]], list[QParams | None], list["ir.Node"]]


def _results(node: ir.Node, rule: Rule, scales: Scales) -> _Results | Kept:
    """(quantizers by slot, qparams by slot, nodes between), or why there are none."""
    quantizers: dict[int, list[ir.Node]] = {}
    qparams: list[QParams | None] = [None] * len(node.outputs)
    absorbed: list[ir.Node] = []
    for slot in rule.outputs:
        value = node.outputs[slot]
        clamp = _only_clamp(value, node)
        if clamp is not None and not rule.shares_qparams and rule.clamp is None:
            value = clamp.outputs[0]
        readers = [use.node for use in value.uses()]
        quantizing = [r for r in readers if is_quantize(r) and r.graph is node.graph]
        if clamp is None and not quantizing and not rule.needs_output:
            continue
        if not quantizing or len(quantizing) < len(readers) or value.is_graph_output():
            return Kept("its result is read in float32 too, or not quantized at all")
        found = [scales.of(r) for r in quantizing]
        if any(p is None or p != found[0] for p in found) or found[0] is None:
            return Kept("its result is quantized in more than one way, or with unknown scales")
        if clamp is not None and value is clamp.outputs[0]:
            if not _redundant(clamp, found[0]):
                return Kept(f"{clamp.op_type} behind it bounds more than its codes do")
            absorbed.append(clamp)
        if found[0].dtype.name not in CODES or found[0].granularity != PerTensor():
            return Kept(f"its result is {found[0].dtype}, or has one scale per channel")
        quantizers[slot], qparams[slot] = quantizing, found[0]
    return quantizers, qparams, absorbed


def _only_clamp(value: ir.Value, node: ir.Node) -> ir.Node | None:
    """Relu or Clip that alone reads the value and has one reader itself, as ONNX Runtime asks."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    (reader,) = (use.node for use in uses)
    if reader.op_type not in ("Relu", "Clip") or reader.domain or reader.graph is not node.graph:
        return None
    result = reader.outputs[0]
    return None if result.is_graph_output() or len(result.uses()) != 1 else reader


def _redundant(clamp: ir.Node, qparams: QParams) -> bool:
    """Whether saturation to the codes' type does what the Relu or Clip does (or nearly so).

    rint(bound / scale) + zero_point is compared with the ends of the type, as ONNX Runtime does.
    """
    operator = catalog.find(clamp.op_type, clamp.domain)
    rule = None if operator is None else operator.rule(float_view_plain(clamp))
    if not isinstance(rule, Rule) or rule.clamp is None:
        return False
    zero_point, dtype = int(qparams.zero_point), qparams.dtype
    if clamp.op_type == "Relu":
        return zero_point == dtype.qmin
    low, high = (np.rint(np.float32(bound) / qparams.scale) for bound in rule.clamp)
    if not (np.isfinite(low) and np.isfinite(high)) or max(-low, high) >= 2**31:
        return False  # ONNX Runtime casts these to int32: what that gives depends on the CPU
    return int(low) + zero_point <= dtype.qmin and int(high) + zero_point >= dtype.qmax


def float_view_plain(node: ir.Node) -> ir.Node:
    """A view of a node none of whose inputs matter but constants."""
    from onnxq.graph.fuse.scales import Scales

    return float_view(node, Scales())


def _goes_to_quantize(value: ir.Value, node: ir.Node) -> bool:
    clamp = _only_clamp(value, node)
    readers = [use.node for use in (clamp.outputs[0] if clamp else value).uses()]
    return bool(readers) and not value.is_graph_output() and all(map(is_quantize, readers))


# --- bias

BIAS_SCALE_TOLERANCE = 0.01  # ONNX Runtime takes a bias whose scale is that near x_scale * w_scale


def _take_bias(made: Site, scales: Scales) -> str:
    """Puts int32 codes of a bias in place; the reason where that cannot be done."""
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
    if producer is not None and from_dequantize(value, made.node):
        qparams = scales.of(producer)
        if qparams is None or qparams.dtype.name != "int32" or np.any(qparams.zero_point):
            return "its bias is not int32 with constant scales and zero point 0"
        if not np.allclose(qparams.scale, wanted, rtol=BIAS_SCALE_TOLERANCE, atol=0):
            return "the scale of its bias is not the product of the scales of input and weight"
        made.inputs[slot] = producer.inputs[0]
        return ""
    tensor = constant(value)
    if tensor is None or tensor.dtype.name != "FLOAT" or len(tensor.shape) != 1:
        return "its bias is float, and no constant vector"
    if not made.quantizers:
        return "its bias is float and its result not quantized: ONNX Runtime leaves it in float32"
    with np.errstate(all="ignore"):
        codes = np.rint(np.asarray(tensor.numpy() / wanted, np.float32))
    if not np.all(np.abs(codes) < 2**31):
        return "its bias does not fit into int32"
    made.new_bias = slot, codes.astype(np.int32)
    return ""
