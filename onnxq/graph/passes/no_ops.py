"""Nodes that return their input are taken out: Identity, Dropout at inference, Cast to its type.

ONNX Runtime takes out a Transpose that keeps the order of the axes when it loads a model, and then
the DQ and Q that met: which of a quantized model's nodes it fuses is foreseen without such nodes.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxq.graph.edit import all_nodes, bypass
from onnxq.graph.weights import constant


class RemoveNoOps(ir.passes.InPlacePass):
    """y = Identity(x), Dropout(x), Cast(x, its type), CastLike(x, z), Transpose(x, 0 1 2): y := x.

    In bodies too.

    The name of a graph output survives. A Dropout in training mode, or whose mask is read, stays.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Takes out all of them, but those that hold up a graph output (see `bypass`)."""
        modified = False
        for node in all_nodes(model):
            modified |= _is_no_op(node) and bypass(node)
        return ir.passes.PassResult(model, modified)


def _is_no_op(node: ir.Node) -> bool:
    if node.domain or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Transpose":
        order = list(node.attributes.get_ints("perm", []))
        return bool(order) and order == list(range(len(order)))
    if node.op_type == "Dropout":
        return not _trains(node) and not any(_is_read(y) for y in node.outputs[1:])
    dtype = node.inputs[0].dtype
    if node.op_type == "Cast":
        return dtype is not None and node.attributes.get_int("to") == dtype.value
    if node.op_type == "CastLike":
        like = node.inputs[1]
        return dtype is not None and like is not None and like.dtype == dtype
    return False


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _trains(dropout: ir.Node) -> bool:
    """Whether training_mode (input 2, since opset 12) is on, or may be."""
    if len(dropout.inputs) < 3 or dropout.inputs[2] is None:
        return False
    mode = constant(dropout.inputs[2])
    return mode is None or bool(mode.numpy().any())
