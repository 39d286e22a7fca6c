"""A model as protobuf without its weights, for onnx's C++ passes and for streaming writers."""

from collections.abc import Callable, Iterator

import onnx
import onnx_ir as ir

from onnxq.graph.untrusted.scopes import scopes

BIG_BYTES = 1024  # shapes, axes and other tensors that inference reads are smaller

Swap = Callable[[ir.Graph, ir.Value, ir.TensorProtocol], ir.TensorProtocol]


def placeholder(
    tensor: ir.TensorProtocol, name: str, location: str = "weights", offset: int = 0
) -> ir.ExternalTensor:
    """An external tensor of the same type and shape, whose data is somewhere else or nowhere."""
    shape = ir.Shape(tensor.shape.numpy())
    doc_string = getattr(tensor, "doc_string", None)
    return ir.ExternalTensor(
        location,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=shape,
        name=name,
        doc_string=doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


def is_big(tensor: ir.TensorProtocol) -> bool:
    """Whether the tensor is left out of skeletons. Strings never are: they have no fixed size."""
    return tensor.dtype != ir.DataType.STRING and tensor.nbytes >= BIG_BYTES


def in_memory(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor that serializes with its data: external ones would be written as a reference."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    shape = ir.Shape(tensor.shape.numpy())
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, shape=shape, name=tensor.name)


def read_attributes(model: ir.Model) -> None:
    """Holds tensors of attributes that are in files, mapped, in place: all else goes by name.

    A protobuf would refer to the file, and forget in which folder it is.
    """
    for scope in scopes(model):
        for node in scope.graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    node.attributes[name] = ir.AttrTensor(name, in_memory(attribute.as_tensor()))


def serialize(model: ir.Model, swap: Swap) -> onnx.ModelProto:
    """The model as protobuf, each initializer's tensor exchanged by `swap`; itself unchanged."""
    before = [
        (graph, value, value.const_value)
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    ]
    try:
        for graph, value, tensor in before:
            value.const_value = swap(graph, value, tensor)
        return ir.to_proto(model)
    finally:
        for _, value, tensor in before:
            value.const_value = tensor


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """The model with placeholders for all tensors of BIG_BYTES and more, hence small."""

    def swap(_graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        return placeholder(tensor, value.name or "") if is_big(tensor) else in_memory(tensor)

    return serialize(model, swap)


def proto_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and the bodies in it, in an order that follows from the nodes alone."""
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        yield one
        for node in one.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else []
                waiting += attribute.graphs
