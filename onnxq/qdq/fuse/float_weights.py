"""Float weights between DQ and Q, which ONNX Runtime quantizes when it loads a model.

    DQ -> Conv(W, B) -> Q       becomes     DQ -> Conv(DQ(codes of W), DQ(codes of B)) -> Q

    w_scale = (max(W, 0) - min(W, 0)) / 255, one for the tensor; int8 codes with a zero point
    b_scale = x_scale w_scale; int32 codes rint(B / b_scale)

Of Conv, ConvTranspose and Gemm; Relu and Clip may stand before Q. A ConvTranspose still computes in
float32 afterwards, with the rounded weight. A float bias beside quantized weights is quantized
too, where they have one scale or one per entry of the bias. ONNX Runtime's WeightBiasQuantization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import dtypes
from onnxq.graph.weights import constant
from onnxq.qdq.read import dequantizer
from onnxq.qparams import PerChannel, PerTensor, QParams, quantize

if TYPE_CHECKING:
    from onnxq.graph.edit import FreeNames
    from onnxq.operator import Array
    from onnxq.qdq.fuse.scales import Scales

Floats = npt.NDArray[np.float32]

OF = frozenset({"Conv", "ConvTranspose", "Gemm"})
PASSED = frozenset({"Relu", "Clip"})
BIAS = 2  # slot


def quantize_float_weights(graph: ir.Graph, scales: Scales, names: FreeNames) -> None:
    """Writes codes and DequantizeLinear in place of the float constants, in place."""
    for node in list(graph):
        if node.op_type in OF and not node.domain:
            _quantize(node, scales, names)


def _quantize(node: ir.Node, scales: Scales, names: FreeNames) -> None:
    x = _dequantized(node.inputs[0], scales)
    if x is None or x.granularity != PerTensor() or not _goes_to_quantize(node):
        return
    bias = node.inputs[BIAS] if len(node.inputs) > BIAS else None
    b = _floats(bias)
    if bias is not None and (b is None or b.ndim != 1):  # then it leaves the weight, too
        return
    weight = _floats(node.inputs[1])
    if weight is None:
        w = _dequantized(node.inputs[1], scales)
        if w is None or b is None or not _is_per_output(w, b, node):
            return
    else:
        w = _qparams_of(weight)
        _read_codes(node, 1, quantize(weight, w), (w.scale, w.zero_point), names)
    if b is not None:
        _quantize_bias(node, b, np.asarray(x.scale * w.scale), names)


def _quantize_bias(node: ir.Node, b: Floats, scale: Floats, names: FreeNames) -> None:
    with np.errstate(all="ignore"):
        codes = np.rint(np.asarray(b / scale, np.float32))
    # beyond int32: what a conversion gives on x86
    codes = np.where(np.abs(codes) < 2.0**31, codes.astype(np.float64), -(2.0**31))
    _read_codes(node, BIAS, codes.astype(np.int32), (scale,), names)


def _dequantized(value: ir.Value | None, scales: Scales) -> QParams | None:
    """The constant qparams of the DequantizeLinear that makes the value."""
    source = dequantizer(value)
    found = None if source is None else scales.of(source)
    return found if isinstance(found, QParams) else None


def _is_per_output(w: QParams, b: Floats, node: ir.Node) -> bool:
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


def _floats(value: ir.Value | None) -> Floats | None:
    """The numbers of a float32 constant."""
    tensor = constant(value)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return None
    return np.asarray(tensor.numpy(), np.float32)


def _goes_to_quantize(node: ir.Node) -> bool:
    """Whether one node alone reads the result, a Q; or a Relu or Clip of which this is so."""
    while len(node.outputs) == 1:
        readers = {use.node for use in node.outputs[0].uses()}
        if len(readers) != 1:
            return False
        (node,) = readers
        if node.op_type == "QuantizeLinear":
            return True
        if node.op_type not in PASSED:
            return False
    return False


def _qparams_of(weight: Floats) -> QParams:
    """One scale and int8 zero point, in float32 as ONNX Runtime computes them."""
    low = np.float32(min(weight.min(initial=0), 0))
    high = np.float32(max(weight.max(initial=0), 0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero_point = np.rint(np.clip(np.float32(-128) - low / scale, -128, 127))
    return QParams(np.asarray(scale), np.asarray(zero_point, np.int8), dtypes.INT8, PerTensor())


def _read_codes(
    node: ir.Node, slot: int, codes: Array, parameters: tuple[Array, ...], names: FreeNames
) -> None:
    """The node reads DQ(codes) in the slot; the float constant goes where nobody else reads it."""
    old, graph = node.inputs[slot], node.graph
    assert old is not None
    assert isinstance(graph, ir.Graph)
    suffixes = ("quantized", "scale", "zero_point")
    inputs = []
    for array, suffix in zip((codes, *parameters), suffixes, strict=False):
        name = names.value(f"{old.name}_{suffix}")
        value = ir.val(name, const_value=ir.tensor(array, name=name))
        graph.register_initializer(value)
        inputs.append(value)
    dequantize = ir.node(
        "DequantizeLinear",
        inputs,
        {"axis": 0} if parameters[0].ndim else {},
        name=names.node(f"{old.name}_dequantize"),
    )
    dequantize.version = graph.opset_imports.get("", node.version)
    real = dequantize.outputs[0]
    real.name, real.type = names.value(f"{old.name}_dequantized"), ir.TensorType(ir.DataType.FLOAT)
    real.shape = ir.Shape(codes.shape)
    graph.insert_before(node, dequantize)
    node.replace_input_with(slot, real)
    if not old.uses() and old.is_initializer() and not old.is_graph_output():
        assert isinstance(old.graph, ir.Graph)
        del old.graph.initializers[str(old.name)]
