"""A float16 model becomes a float32 model, its inputs and outputs included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import all_nodes, all_values
from onnxq.graph.weights import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
# attributes that hold an element type
_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype", "output_dtype", "softmax_precision")


class ConvertToFloat32(ir.passes.InPlacePass):
    """float16 := float32 in weights, types and type attributes of all graphs, bodies included.

    Every float16 number is a float32 number, so weights are exact; results differ only in that sums
    and products are rounded less. Big weights are converted when they are read.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts everything; modified says whether there was any float16."""
        modified = False
        for value in _values(model):
            if value.const_value is not None and value.const_value.dtype == _HALF:
                value.const_value = _widened(value.const_value)
                modified = True
            if value.dtype == _HALF and isinstance(value.type, ir.TensorType):
                value.type = ir.TensorType(
                    _SINGLE
                )  # a type object may be shared: never changed in place
                modified = True
        for node in all_nodes(model):
            for attribute in tuple(node.attributes.values()):
                modified |= _convert_attribute(node, attribute)
        return ir.passes.PassResult(model, modified)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from all_values(graph)


def _widened(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    def compute() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return tensor.numpy().astype(np.float32)

    return derived(compute, _SINGLE, tensor.shape.numpy(), tensor.name)


def _convert_attribute(node: ir.Node, attribute: ir.Attr) -> bool:
    if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == _HALF:
        tensor = _widened(attribute.as_tensor())
        node.attributes[attribute.name] = ir.AttrTensor(attribute.name, tensor)
        return True
    is_type = attribute.name in _TYPE_ATTRIBUTES and attribute.type == ir.AttributeType.INT
    if is_type and attribute.as_int() == _HALF.value:
        node.attributes[attribute.name] = ir.AttrInt64(attribute.name, _SINGLE.value)
        return True
    return False
