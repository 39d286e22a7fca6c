"""QuantizeLinear and DequantizeLinear (Q, DQ), written: every pass on graphs makes them here.

    x -> Q -> integers -> DQ -> readers     GraphQParams, quantize_behind
    constant integers -> DQ -> a slot       new_integers
    Q -> Clip on integers                   clip_integers
    int8 integers as uint8 integers            shifted_constant

Only the forms of an operator on integers, which its file under operators/ lowers to, bring their
own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import QDType
from onnxq.graph.edit import FreeNames, graph_of, home_of, new_constant, new_initializer
from onnxq.operator import Array
from onnxq.qdq.read import DEQUANTIZE, QUANTIZE, SCALE, zero_point_of
from onnxq.qdq.tensors import stored_integers
from onnxq.qparams import PerBlock, PerChannel, PerTensor, QParams, shifted

OUTPUT_DTYPE_OPSET = 21  # where QuantizeLinear got its output_dtype
PER_BLOCK_OPSET = 21  # where it got its block_size


@dataclass(frozen=True, slots=True)
class GraphQParams:
    """Scale and zero point as values of a graph, which a Q and the DQ behind it share.

    Attributes:
        zero_point: its value; None: 0.
        attributes: axis and block_size, where there are several scales.
    """

    scale: ir.Value
    zero_point: ir.Value | None
    integers: ir.DataType
    attributes: Mapping[str, int] = field(default_factory=dict)
    domain: str = ""

    def quantize(self, x: ir.Value, name: str, result: str | None = None) -> ir.Node:
        """A QuantizeLinear of x, not in a graph yet; `result` names its integers."""
        attributes = dict(self.attributes)
        if self.zero_point is None and self.integers != ir.DataType.UINT8:
            attributes["output_dtype"] = self.integers.value
        return self._node(QUANTIZE, x, attributes, (name, result), self.integers)

    def dequantize(self, integers: ir.Value, name: str, result: str | None = None) -> ir.Node:
        """A DequantizeLinear of integers, not in a graph yet; `result` names its real values."""
        real = self.scale.dtype or ir.DataType.FLOAT
        return self._node(DEQUANTIZE, integers, self.attributes, (name, result), real)

    def _node(
        self,
        op_type: str,
        x: ir.Value,
        attributes: Mapping[str, int],
        names: tuple[str, str | None],
        dtype: ir.DataType,
    ) -> ir.Node:
        inputs = [x, self.scale, *([] if self.zero_point is None else [self.zero_point])]
        node = ir.node(op_type, inputs, attributes, domain=self.domain, name=names[0])
        made = node.outputs[0]
        made.name, made.type, made.shape = names[1], ir.TensorType(dtype), x.shape
        return node


def graph_qparams_of(node: ir.Node, qparams: QParams) -> GraphQParams:
    """Qparams of a Q or DQ, as values of the graph.

    Of a DQ without zero point, Q takes the type of integers from output_dtype; below opset 21, it
    gives uint8, also where ONNX Runtime writes it behind a DQ of int8.
    """
    scale, zero_point = node.inputs[SCALE], zero_point_of(node)
    assert scale is not None, "it has qparams"
    integers = ir.DataType[qparams.dtype.onnx]
    is_old = node.version is not None and node.version < OUTPUT_DTYPE_OPSET
    if zero_point is None and is_old:
        integers = ir.DataType.UINT8
    return GraphQParams(scale, zero_point, integers, granularity_attributes(qparams), node.domain)


def qparams_from(scale: ir.Value, zero_point: ir.Value, qparams: QParams) -> GraphQParams:
    """Graph form of qparams, which two values hold."""
    integers = ir.DataType[qparams.dtype.onnx]
    return GraphQParams(scale, zero_point, integers, granularity_attributes(qparams))


NewConstant = Callable[[str, Array], ir.Value]
"""Makes a constant in a graph, of that name where it is free."""


def constants_of(node: ir.Node, names: FreeNames) -> NewConstant:
    """Makes constants in the graph that holds the node."""
    return lambda name, array: new_constant(node, names.value(name), array)


def new_graph_qparams(new: NewConstant, stem: str, qparams: QParams) -> GraphQParams:
    """The qparams in new constants `<stem>_scale` and `<stem>_zero_point`.

    Those per tensor have rank 0: QLinearAdd refuses rank 1.
    """
    scale = new(f"{stem}_scale", qparams.scale)
    zeros = stored_integers(qparams.zero_point, qparams.dtype)
    return qparams_from(scale, new(f"{stem}_zero_point", zeros), qparams)


def new_integers(
    new: NewConstant, stem: str, integers: Array, qparams: QParams
) -> tuple[ir.Value, GraphQParams]:
    """New constant integers, `<stem>_quantized`, and their qparams."""
    return new(f"{stem}_quantized", integers), new_graph_qparams(new, stem, qparams)


def feed(node: ir.Node, slot: int, made: ir.Node) -> None:
    """Puts a new node of one output before the node, which reads it in that slot."""
    graph_of(node).insert_before(node, made)
    node.replace_input_with(slot, made.outputs[0])


def quantize_behind(
    value: ir.Value,
    graph_qparams: GraphQParams,
    names: FreeNames,
    uses: Iterable[tuple[ir.Node, int]] | None = None,
) -> ir.Value:
    """Inserts value -> Q -> DQ -> its readers; what the DQ gives.

    Args:
        value: that a node makes; a graph output hands its name on.
        graph_qparams: of Q and DQ.
        names: for the new nodes.
        uses: the slots that read it then; None: all of them, and the graph's output.
    """
    producer = value.producer()
    assert producer is not None, "a node makes it"
    stem = str(value.name)
    quantizer = graph_qparams.quantize(
        value, names.node(f"{stem}_quantize"), names.value(f"{stem}_quantized")
    )
    back = graph_qparams.dequantize(quantizer.outputs[0], names.node(f"{stem}_dequantize"))
    real, is_output = back.outputs[0], uses is None and value.is_graph_output()
    if uses is None:
        value.replace_all_uses_with(real, replace_graph_outputs=True)
        quantizer.replace_input_with(0, value)
    for reader, slot in uses or ():
        reader.replace_input_with(slot, real)
    if is_output:
        value.name, real.name = names.value(f"{stem}_moved"), stem
    else:
        real.name = names.value(f"{stem}_dequantized")
    graph_of(producer).insert_after(producer, [quantizer, back])
    return real


def clip_integers(
    integers: ir.Value, dtype: QDType, bounds: tuple[int, int], stem: str, new: NewConstant
) -> ir.Node:
    """A Clip on integers, not in a graph yet, and without names."""
    limits = [
        new(f"{stem}_{which}", np.array(bound, dtype.storage))
        for which, bound in zip(("min", "max"), bounds, strict=True)
    ]
    node = ir.node("Clip", [integers, *limits])
    result = node.outputs[0]
    result.type, result.shape = ir.TensorType(ir.DataType[dtype.onnx]), integers.shape
    return node


def shifted_constant(value: ir.Value, names: FreeNames) -> ir.Value:
    """An int8 constant as the uint8 integers of the same numbers, `<name>_uint8`, in its graph."""
    graph, tensor = home_of(value), ir.convenience.get_const_tensor(value)
    assert tensor is not None, "it is a constant"
    name = names.value(f"{value.name}_uint8")
    return new_initializer(graph, name, ir.Tensor(shifted(tensor.numpy()), name=name))


def min_opset(qparams: QParams) -> int:
    """The first ai.onnx opset whose Q and DQ have the type and granularity of these qparams."""
    blocks = PER_BLOCK_OPSET if isinstance(qparams.granularity, PerBlock) else 0
    return max(qparams.dtype.min_opset, blocks)


def granularity_attributes(qparams: QParams) -> dict[str, int]:
    """Attributes axis and block_size of a Q or DQ with these qparams."""
    match qparams.granularity:
        case PerTensor():
            return {}
        case PerChannel(axis):
            return {"axis": axis}
        case block:
            return {"axis": block.axis, "block_size": block.size}
