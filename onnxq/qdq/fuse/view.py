"""The float node that a node between DequantizeLinear and QuantizeLinear stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.affine import dequantize
from onnxq.graph.weights import constant
from onnxq.qdq.read import Unread, dequantizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnxq.qdq.fuse.scales import Scales
    from onnxq.qparams import QParams


def float_view(node: ir.Node, scales: Scales) -> ir.Node:
    """A copy of the node, outside of any graph, that reads floats; quantized constants too.

    A rule sees in it what it saw in the float model; the data of constants is made when asked for.
    """
    inputs = [None if value is None else _seen(value, scales) for value in node.inputs]
    return view_of(node, node.op_type, inputs, node.attributes.values())


def view_of(
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Iterable[ir.Attr] = (),
) -> ir.Node:
    """A node of that type outside of any graph, with the name and the outputs' types of `node`."""
    view = ir.Node(
        node.domain,
        op_type,
        inputs,
        list(attributes),
        num_outputs=len(node.outputs),
        version=node.version,
        name=node.name,
    )
    for mine, value in zip(view.outputs, node.outputs, strict=True):
        mine.type, mine.shape = value.type, value.shape
    return view


def _seen(value: ir.Value, scales: Scales) -> ir.Value:
    source = dequantizer(value)
    if source is None:
        return _copy(value, constant(value))
    tensor, qparams = constant(source.inputs[0]), scales.of(source)
    if tensor is None or isinstance(qparams, Unread):
        return _copy(value, None)
    return _copy(value, _real(tensor, qparams))


def _copy(value: ir.Value, tensor: ir.TensorProtocol | None) -> ir.Value:
    shape = value.shape if tensor is None else ir.Shape(tensor.shape.numpy())
    kind = value.type if tensor is None else ir.TensorType(tensor.dtype)
    return ir.Value(name=value.name, type=kind, shape=shape, const_value=tensor)


def _real(tensor: ir.TensorProtocol, qparams: QParams) -> ir.TensorProtocol:
    """The numbers that constant integers stand for, computed when they are read."""
    return ir.LazyTensor(
        lambda: ir.Tensor(dequantize(tensor.numpy(), qparams)),
        ir.DataType.FLOAT,
        ir.Shape(tensor.shape.numpy()),
    )
