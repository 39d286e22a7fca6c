"""Keeps ONNX Runtime from moving a DequantizeLinear to where it then cannot load the model.

    DQ(int8) -> MatMul -> Add(bias (O,))      becomes      DQ(int8) -> MatMul -> Add(bias (1, O))
    DQ(int8) -> Transpose -> float              becomes      DQ(int8) -> Max -> Transpose -> float
    DQ -> Transpose -> body of an If            becomes      DQ -> Max -> Transpose -> body of an If

It moves a DQ down past what only moves data, by a Q and a DQ of its own, with output_dtype INT8
from opset 21 on; where it turns int8 integers into uint8, their zero points change and output_dtype
does not: "output_dtype INT8 does not match y_zero_point type UINT8". So it does with the Reshape
that it writes when it makes a Gemm of a MatMul with a vector as bias. Max of one tensor is a copy
that nothing moves past. Measured on ONNX Runtime 1.31; opset 20 loads.

Where a body of If, Loop or Scan reads what was moved, it ends its process: it indexes the inputs of
the If, of which the body's tensor is none (QDQPropagationTransformer, 1.31, each opset).
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, forget_unread, graph_of, new_constant
from onnxq.operator.nodes import input_at
from onnxq.ort import facts
from onnxq.ort.kept_copy import KEPT_COPY
from onnxq.ort.matmul_add import MatMulAdd, matmul_add
from onnxq.ort.version import OLDEST
from onnxq.qdq.read import dequantizer, is_quantize
from onnxq.qdq.write import OUTPUT_DTYPE_OPSET


def keep_loadable(model: ir.Model) -> None:
    """Gives such biases an axis of size 1 in front, and such movements a copy, in place."""
    has_output_dtype = model.opset_imports.get("", 0) >= OUTPUT_DTYPE_OPSET
    names = FreeNames(model)
    for node in list(model.graph.all_nodes()):
        if facts.of(node, OLDEST).moved_past and (
            _is_read_by_body(node) or (has_output_dtype and _is_passed(node))
        ):
            _copy_in_front(node, names)
    if not has_output_dtype:
        return
    for found in list(_biased(model)):
        add, slot, bias = found.add, found.slot, found.bias
        name = names.value(f"{bias.name}_row")
        add.replace_input_with(slot, _row(bias, add, name, names))
        forget_unread(bias)


def _biased(model: ir.Model) -> Iterator[MatMulAdd]:
    """The MatMuls of int8 integers that are no plain matrix, with a vector added."""
    for node in model.graph.all_nodes():
        found = matmul_add(node)
        if found is None or not found.is_flattened or not _is_signed(node.inputs[0]):
            continue
        shape = found.bias.shape
        if shape is not None and len(shape) == 1:
            yield found


def _is_passed(node: ir.Node) -> bool:
    """Whether it only moves dequantized int8 integers, and not to a Q."""
    x = node.inputs[0]
    while x is not None and (above := x.producer()) is not None and above.op_type == "Identity":
        x = above.inputs[0]
    readers = [use.node for use in node.outputs[0].uses()]
    to_integers = bool(readers) and all(is_quantize(reader) for reader in readers)
    return _is_signed(x) and (not to_integers or node.outputs[0].is_graph_output())


def _is_read_by_body(node: ir.Node) -> bool:
    """Whether a body reads what the node makes of dequantized integers."""
    result = node.outputs[0]
    if all(graph_of(use.node) is graph_of(node) for use in result.uses()):
        return False
    x = node.inputs[0]
    while x is not None and (above := x.producer()) and facts.of(above, OLDEST).transparent:
        x = above.inputs[0]
    return dequantizer(x) is not None


def _copy_in_front(node: ir.Node, names: FreeNames) -> None:
    x = input_at(node, 0)
    copy = ir.node(KEPT_COPY, [x], name=names.node(f"{node.name}_copy"))
    result = copy.outputs[0]
    result.name, result.type, result.shape = names.value(f"{x.name}_copied"), x.type, x.shape
    graph_of(node).insert_before(node, copy)
    node.replace_input_with(0, result)


def _is_signed(x: ir.Value | None) -> bool:
    """Whether x is dequantized int8 integers."""
    source = dequantizer(x)
    integers = None if source is None else source.inputs[0]
    return integers is not None and integers.dtype == ir.DataType.INT8


def _row(bias: ir.Value, add: ir.Node, name: str, names: FreeNames) -> ir.Value:
    """The bias with an axis in front."""
    if bias.const_value is not None and bias.is_initializer():
        return new_constant(add, name, np.asarray(bias.const_value.numpy())[None])
    axes = new_constant(add, names.value(f"{name}_axes"), np.zeros(1, np.int64))
    node = ir.node("Unsqueeze", [bias, axes], name=names.node(name))
    row = node.outputs[0]
    assert bias.shape is not None
    row.name, row.type, row.shape = name, bias.type, ir.Shape([1, *bias.shape])
    graph_of(add).insert_before(add, node)
    return row
