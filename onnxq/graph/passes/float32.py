"""A float16 or bfloat16 model becomes a float32 model; float16 inputs and outputs stay."""

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, all_values
from onnxq.graph.folded import note_cast
from onnxq.graph.weights import derived

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
_NARROW = (_HALF, ir.DataType.BFLOAT16)
# attributes that hold an element type
_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype", "output_dtype", "softmax_precision")


class ConvertToFloat32(ir.passes.InPlacePass):
    """float32 in place of float16 and bfloat16 in weights, types and attributes of all graphs.

        x (float16) -> f -> y (float16)
        x (float16) -> Cast -> f -> Cast -> y (float16)

    Inputs and outputs of the model keep their types, so that the result takes its place; a Cast
    stands behind the one and ahead of the other. Those of bfloat16, which NumPy has no type of,
    become float32. Every float16 and bfloat16 number is a float32 number, so weights are exact;
    results differ only in that sums and products are rounded less. Big weights are converted when
    they are read.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts everything; modified says whether there was any but at inputs and outputs."""
        modified = False
        names = FreeNames(model)
        for x in model.graph.inputs:
            modified |= x.dtype == _HALF and _open_input(x, model.graph, names)
        for i, y in enumerate(model.graph.outputs):
            modified |= y.dtype == _HALF and _open_output(y, i, model.graph, names)
        inputs_and_outputs = {
            v for v in (*model.graph.inputs, *model.graph.outputs) if v.dtype == _HALF
        }
        edge_casts = {y.producer() for y in model.graph.outputs if y.dtype == _HALF}
        for value in (value for graph in model.graphs() for value in all_values(graph)):
            if value.const_value is not None and value.const_value.dtype in _NARROW:
                value.const_value = _widened(value.const_value)
                modified = True
            if value.dtype in _NARROW and value not in inputs_and_outputs:
                value.type = _single(value.type)
                modified = True
        for node in all_nodes(model):
            if node in edge_casts:
                continue
            for attribute in tuple(node.attributes.values()):
                modified |= _convert_attribute(node, attribute)
        return ir.passes.PassResult(model, modified)


def _open_input(x: ir.Value, graph: ir.Graph, names: FreeNames) -> bool:
    """Puts a Cast behind a float16 input; False where nothing else reads it."""
    readers = [use for use in x.uses() if not _is_cast_to(use.node, _SINGLE)]
    if not readers:
        return False
    stem = str(x.name)
    inside = ir.val(names.value(f"{stem}_float32"), _SINGLE, x.shape)
    for reader in readers:
        reader.node.replace_input_with(reader.idx, inside)
    graph.insert_before(graph[0], _cast(x, inside, _SINGLE, names.node(f"{stem}_to_float32")))
    return True


def _open_output(y: ir.Value, place: int, graph: ir.Graph, names: FreeNames) -> bool:
    """Puts a Cast ahead of a float16 output; False where one is there, or y is an input."""
    producer = y.producer()
    is_there = producer is not None and _is_cast_to(producer, _HALF) and not y.uses()
    if y.is_graph_input() or is_there:
        return False
    stem = str(y.name)
    outside = ir.val(stem, _HALF, y.shape)
    y.name = names.value(f"{stem}_float32")
    graph.outputs[place] = outside
    graph.append(_cast(y, outside, _HALF, names.node(f"{stem}_to_float16")))
    return True


def _single(kind: ir.TypeProtocol | None) -> ir.TypeProtocol:
    """The type with float32 inside; it may be shared: never changed in place."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        return type(kind)(_single(kind.elem_type))
    return ir.TensorType(_SINGLE)


def _cast(x: ir.Value, y: ir.Value, to: ir.DataType, name: str) -> ir.Node:
    return ir.Node("", "Cast", [x], [ir.AttrInt64("to", to.value)], outputs=[y], name=name)


def _is_cast_to(node: ir.Node, dtype: ir.DataType) -> bool:
    to = node.attributes.get_int("to", 0)
    return node.op_type == "Cast" and not node.domain and to == dtype.value


def _widened(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    def compute() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return tensor.numpy().astype(np.float32)

    return note_cast(tensor, derived(compute, _SINGLE, tensor.shape.numpy(), tensor.name))


def _convert_attribute(node: ir.Node, attribute: ir.Attr) -> bool:
    if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in _NARROW:
        tensor = _widened(attribute.as_tensor())
        node.attributes[attribute.name] = ir.AttrTensor(attribute.name, tensor)
        return True
    is_type = attribute.name in _TYPE_ATTRIBUTES and attribute.type == ir.AttributeType.INT
    if is_type and attribute.as_int() in _NARROW:
        node.attributes[attribute.name] = ir.AttrInt64(attribute.name, _SINGLE.value)
        return True
    return False
