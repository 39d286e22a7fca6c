"""Float weights between DQ and Q, which ONNX Runtime quantizes when it loads a model.

    DQ -> Conv(W, B) -> Q       becomes     DQ -> Conv(DQ(integers of W), DQ(integers of B)) -> Q

    w_scale = (max(W, 0) - min(W, 0)) / 255, one for the tensor; int8 integers with a zero point
    b_scale = x_scale w_scale; int32 integers rint(B / b_scale)

Of Conv, ConvTranspose, Gemm, and a MatMul with an Add that become a Gemm; Relu and Clip may stand
before Q. A ConvTranspose still computes in float32 afterwards, with the rounded weight. A float
bias beside quantized weights is quantized too, where they have one scale or one per entry of the
bias. ONNX Runtime's WeightBiasQuantization.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq import dtypes
from onnxq.affine import quantize
from onnxq.graph.edit import FreeNames, forget_unread, new_constant
from onnxq.graph.walk import value_name
from onnxq.graph.weights import constant
from onnxq.operator import Singles
from onnxq.operator.nodes import find_input, input_at
from onnxq.ort import facts
from onnxq.ort.matmul_add import matmul_add
from onnxq.qdq.fuse.scales import Scales
from onnxq.qdq.read import BIAS, WEIGHT, dequantizer, is_quantize
from onnxq.qdq.write import GraphQParams, constants_of, feed, new_integers
from onnxq.qparams import PerChannel, PerTensor, QParams


@dataclass(frozen=True, slots=True, eq=False)
class _MatMul:
    """A Conv, ConvTranspose or Gemm, or a MatMul and an Add that become a Gemm.

    Attributes:
        node: reads the activation in slot 0, the weight in slot 1.
        slot: input of `biased` that is the bias, if it has one.
        may_clamp: ONNX Runtime looks for the Q behind Relu and Clip, too.
    """

    node: ir.Node
    biased: ir.Node
    slot: int
    may_clamp: bool

    @property
    def bias(self) -> ir.Value | None:
        return find_input(self.biased, self.slot)


def round_constants(graph: ir.Graph, scales: Scales, names: FreeNames) -> None:
    """Computes each QuantizeLinear of a constant, which ONNX Runtime does before it fuses."""
    for node in list(graph):
        weight = _floats(node.inputs[0]) if is_quantize(node) else None
        if weight is None or node.outputs[0].is_graph_output():
            continue
        qparams, integers = scales.of(node), node.outputs[0]
        if isinstance(qparams, QParams):
            name = names.value(value_name(integers))
            integers.replace_all_uses_with(new_constant(node, name, quantize(weight, qparams)))
            graph.remove(node, safe=True)


def quantize_float_weights(graph: ir.Graph, scales: Scales, names: FreeNames) -> None:
    """Writes integers and DequantizeLinear in place of the float constants, in place."""
    for node in list(graph):
        matmul = _matmul(node)
        if matmul is not None:
            _quantize(matmul, scales, names)


def _matmul(node: ir.Node) -> _MatMul | None:
    if facts.of(node).rounds_constants:
        return _MatMul(node, node, BIAS, may_clamp=True)
    found = matmul_add(node)
    if found is None or not found.becomes_gemm:
        return None
    # a Q moves up past the Reshape behind the Gemm, but not past a Relu behind that
    return _MatMul(node, found.add, found.slot, may_clamp=not found.is_flattened)


def _quantize(matmul: _MatMul, scales: Scales, names: FreeNames) -> None:
    node, bias = matmul.node, matmul.bias
    x = _dequantized(node.inputs[0], scales)
    if (
        x is None
        or x.granularity != PerTensor()
        or not goes_to_quantize(matmul.biased, may_clamp=matmul.may_clamp)
    ):
        return
    b = _floats(bias)
    if bias is not None and (b is None or b.ndim != 1):  # then it leaves the weight, too
        return
    weight = _floats(node.inputs[1])
    if weight is None:
        w = _dequantized(node.inputs[1], scales)
        if w is None or b is None or not is_per_output(w, b, node):
            return
    else:
        w = _qparams_of(weight)
        integers = quantize(weight, w)
        stored, graph_qparams = new_integers(
            constants_of(node, names), _stem(node, WEIGHT), integers, w
        )
        _read_integers(node, WEIGHT, stored, graph_qparams, names)
    if b is not None:
        _quantize_bias(matmul, b, np.asarray(x.scale * w.scale), names)


def _quantize_bias(matmul: _MatMul, b: Singles, scale: Singles, names: FreeNames) -> None:
    """Integers beyond int32 are what a conversion gives on x86, where sums with them wrap."""
    node, slot = matmul.biased, matmul.slot
    with np.errstate(all="ignore"):
        integers = np.rint(np.asarray(b / scale, np.float32))
    integers = np.where(np.abs(integers) < 2.0**31, integers.astype(np.float64), -(2.0**31))
    stem = _stem(node, slot)
    stored = new_constant(node, names.value(f"{stem}_quantized"), integers.astype(np.int32))
    scales = new_constant(node, names.value(f"{stem}_scale"), scale)  # may be 0, as there
    graph_qparams = GraphQParams(scales, None, ir.DataType.INT32, {"axis": 0} if scale.ndim else {})
    _read_integers(node, slot, stored, graph_qparams, names)


def _dequantized(value: ir.Value | None, scales: Scales) -> QParams | None:
    """The constant qparams of the DequantizeLinear that makes the value."""
    source = dequantizer(value)
    found = None if source is None else scales.of(source)
    return found if isinstance(found, QParams) else None


def is_per_output(w: QParams, b: Singles, node: ir.Node) -> bool:
    """Whether the weight has one scale, or one per entry of the bias, on the axis of outputs."""
    if not isinstance(w.granularity, PerChannel):
        return True
    value = node.inputs[1]
    rank = len(value.shape) if value is not None and value.shape is not None else 0
    axis = w.granularity.axis % rank if rank else w.granularity.axis
    outputs = {"Conv": 0, "ConvTranspose": 1}.get(node.op_type)
    if outputs is None:
        outputs = 0 if node.attributes.get_int("transB", 0) else 1
    return w.scale.shape == b.shape and axis == outputs


def _floats(value: ir.Value | None) -> Singles | None:
    """The numbers of a float32 constant."""
    tensor = constant(value)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return None
    return np.asarray(tensor.numpy(), np.float32)


def goes_to_quantize(node: ir.Node, *, may_clamp: bool = True) -> bool:
    """Whether one node alone reads the result, a Q; or a Relu or Clip of which this is so."""
    while len(node.outputs) == 1:
        readers = {use.node for use in node.outputs[0].uses()}
        if len(readers) != 1:
            return False
        (node,) = readers
        if is_quantize(node):
            return True
        if not (may_clamp and facts.of(node).swallowed):
            return False
    return False


def _qparams_of(weight: Singles) -> QParams:
    """One scale and int8 zero point, in float32 as ONNX Runtime computes them."""
    low = np.float32(min(weight.min(initial=0), 0))
    high = np.float32(max(weight.max(initial=0), 0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero_point = np.rint(np.clip(np.float32(-128) - low / scale, -128, 127))
    return QParams(np.asarray(scale), np.asarray(zero_point, np.int8), dtypes.INT8, PerTensor())


def _stem(node: ir.Node, slot: int) -> str:
    return str(input_at(node, slot).name)


def _read_integers(
    node: ir.Node, slot: int, stored: ir.Value, graph_qparams: GraphQParams, names: FreeNames
) -> None:
    """The node reads DQ(integers) in the slot; the float constant goes if nobody else reads it."""
    old, stem = node.inputs[slot], _stem(node, slot)
    name = names.node(f"{stem}_dequantize")
    made = graph_qparams.dequantize(stored, name, names.value(f"{stem}_dequantized"))
    made.version = node.version
    feed(node, slot, made)
    if old is not None:
        forget_unread(old)
