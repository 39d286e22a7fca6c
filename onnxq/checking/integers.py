"""Finds integers of activations in a quantized graph: the tensors they stand for, their qparams.

T_quantized                    tensor T: files of onnxq, and ONNX Runtime's QOperator format
T -> QuantizeLinear -> integers   tensor T: QDQ of any tool
Q -> integers -> DQ -> output T   tensor T, where T is an output of the graph
T' = DQ(integers of T) -> Q       tensor T: integers of another type
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.dtypes import INT8, INT16, UINT8, UINT16
from onnxq.errors import OnnxqError
from onnxq.operator.nodes import find_input
from onnxq.ort.expose import observable
from onnxq.qdq.fuse import QPARAMS_KEY
from onnxq.qdq.read import Unread, dequantizer, is_dequantize, is_quantize, qparams_from, qparams_of
from onnxq.qparams import PerTensor, QParams
from onnxq.static.insertion.channel_scales import CHANNEL_SCALES_KEY, read_channel_scales

SUFFIX = "_quantized"

NUMPY_INTEGERS = (UINT8, INT8, UINT16, INT16)
"""Types of integers that ONNX Runtime hands out as NumPy arrays, one element per integer."""
INTEGER_TYPES = frozenset(ir.DataType[t.onnx] for t in NUMPY_INTEGERS)
"""Their types in ONNX."""


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A quantized activation, and its qparams.

    Attributes:
        name: of the value that holds the integers.
        tensor: name of the float tensor they stand for.
        qparams: per-tensor; None where they are not known.
        channel_scale: equalization scale per channel (axis 1); None: none.
    """

    name: str
    tensor: str
    qparams: QParams | None
    problem: str = ""
    channel_scale: tuple[float, ...] | None = None


def find_integers(model: ir.Model) -> list[QuantizedTensor]:
    """Every value named `<tensor>_quantized` and every output of a QuantizeLinear, in graph order.

    A tensor that has several of known qparams is there once, with the first. Constants, quantized
    in the graph or stored as integers, and bodies of Loop and Scan are not looked at.
    """
    values = {v.name: v for node in model.graph.all_nodes() for v in node.outputs}
    initializers = {v.name: v for graph in model.graphs() for v in graph.initializers.values()}
    found = [
        _integers(values[name], initializers)
        for name in observable(model)
        if name in values and (name.endswith(SUFFIX) or _writes_final_integers(values[name]))
    ]
    first = {c.tensor: c for c in reversed(found) if c.qparams is not None}
    return [c for c in found if c.qparams is None or c is first[c.tensor]]


def _writes_final_integers(value: ir.Value) -> bool:
    """Whether QuantizeLinear writes the final integers: no Clip on integers follows."""
    node = value.producer()
    real = node.inputs[0] if is_quantize(node) else None
    if real is None or ir.convenience.get_const_tensor(real) is not None:
        return False
    return not any(use.node.op_type == "Clip" for use in value.uses())


def _integers(value: ir.Value, initializers: Mapping[str | None, ir.Value]) -> QuantizedTensor:
    name, tensor = str(value.name), _tensor(value)
    try:
        scales, text = (value.metadata_props.get(key) for key in (CHANNEL_SCALES_KEY, QPARAMS_KEY))
        scale = None if scales is None else read_channel_scales(scales)
        told = None if text is None else QParams.from_dict(json.loads(text))
    except (
        ValueError,
        TypeError,
        AttributeError,
        OnnxqError,
    ) as error:  # of a file that was edited
        return QuantizedTensor(name, tensor, None, f"its metadata cannot be read: {error}")
    if told is not None:
        return QuantizedTensor(name, tensor, told, channel_scale=scale)
    found = _qparams(value, tensor, initializers)
    if isinstance(found, Unread):
        return QuantizedTensor(name, tensor, None, found.reason)
    if found.granularity != PerTensor():
        many = found.scale.size
        return QuantizedTensor(
            name, tensor, None, f"it has {many} scales; one per tensor is compared"
        )
    if found.dtype not in NUMPY_INTEGERS:
        return QuantizedTensor(
            name, tensor, None, f"ONNX Runtime does not hand out {found.dtype} integers"
        )
    return QuantizedTensor(name, tensor, found, channel_scale=scale)


def _tensor(integers: ir.Value) -> str:
    """Name of the float tensor that the integers stand for."""
    name, producer = str(integers.name), integers.producer()
    if name.endswith(SUFFIX) or not is_quantize(producer):
        return name.removesuffix(SUFFIX)
    for use in integers.uses():  # the tool names what it writes before an output of the graph anew
        if is_dequantize(use.node) and use.node.outputs[0].is_graph_output():
            return str(use.node.outputs[0].name)
    source = producer.inputs[0]
    before = dequantizer(source)
    if before is not None and before.inputs[0] is not None:
        return _tensor(before.inputs[0])
    return name if source is None else str(source.name)


def _qparams(
    value: ir.Value, tensor: str, initializers: Mapping[str | None, ir.Value]
) -> QParams | Unread:
    """QParams of a Q or DQ at the value, else of initializers named after the tensor."""
    at = [use.node for use in value.uses() if is_dequantize(use.node)]
    producer = value.producer()
    if is_quantize(producer):
        at.insert(0, producer)
    for node in at:
        found = qparams_of(node)
        if isinstance(found, QParams):
            return found
    scale, zero_point = (initializers.get(f"{tensor}_{part}") for part in ("scale", "zero_point"))
    if scale is None:
        return _qparams_of_reader(value)
    of_zero_point = None if zero_point is None else zero_point.dtype
    return qparams_from(scale, zero_point, value.dtype or of_zero_point or ir.DataType.UINT8)


def _qparams_of_reader(value: ir.Value) -> QParams | Unread:
    """QParams that an operator on integers reads: inputs (integers, scale, zero point)."""
    for use in value.uses():
        scale, zero_point = (find_input(use.node, use.idx + ahead) for ahead in (1, 2))
        if zero_point is None or zero_point.dtype not in INTEGER_TYPES:
            continue
        found = qparams_from(scale, zero_point, zero_point.dtype)
        if isinstance(found, QParams):
            return found
    return Unread("its scale is not a constant of the model")
