"""Softmax that an exporter or a converter wrote out in several nodes becomes one Softmax-13."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.passes.formulas import producer_of
from onnxq.graph.passes.fused_node import FusedNode, fuse_all, inner_nodes
from onnxq.graph.passes.reductions import reduced_by
from onnxq.graph.weights import constant

if TYPE_CHECKING:
    from collections.abc import Sequence

OPSET = 13  # from which on Softmax is taken along one axis


class FuseSoftmax(ir.passes.InPlacePass):
    """reshape(softmax(flatten(x, axis=k)), shape of x) = Softmax<axis=k>(x).

    Where only the axis k of the flattened ones has more than one element: the last axis, or one
    with axes of 1 behind it. Softmax below opset 13 means that, and onnx's converter writes it so
    wherever it does not know the rank. And

        e / sum(e) = Softmax<axis=k>(x)    for e = exp(x - max(x)), both along axis k.

    All graphs, float32 only, and only where nothing else reads a value in between.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fuses all that match."""
        return ir.passes.PassResult(model, fuse_all(model, _match, OPSET))


def _match(node: ir.Node) -> FusedNode | None:
    if node.domain:
        return None
    match node.op_type:
        case "Reshape":
            return _flattened(node)
        case "Div":
            return _quotient(node)
    return None


def _flattened(reshape: ir.Node) -> FusedNode | None:
    softmax = producer_of(reshape.inputs[0])
    if softmax is None or softmax.op_type != "Softmax":
        return None
    flatten = producer_of(softmax.inputs[0])
    if flatten is None or flatten.op_type != "Flatten":
        return None
    x, target = flatten.inputs[0], reshape.inputs[1]
    if x is None or target is None or x.shape is None or x.dtype != ir.DataType.FLOAT:
        return None
    rank = len(x.shape)
    first = _axis(flatten, 1) + (rank if _axis(flatten, 1) < 0 else 0)
    is_one_axis = 0 <= first < rank and all(size == 1 for size in x.shape[first + 1 :])
    if _axis(softmax, -1) not in (-1, 1) or not is_one_axis or not _is_shape_of(target, x):
        return None
    return _softmax(reshape, [x, target], first - rank)


def _axis(node: ir.Node, default: int) -> int:
    return node.attributes.get_int("axis", default)


def _is_shape_of(target: ir.Value, x: ir.Value) -> bool:
    """Whether a Reshape to it gives the shape of x."""
    assert x.shape is not None
    tensor = constant(target)
    if tensor is not None:
        wanted = tensor.numpy().tolist()
        unlike = [(w, s) for w, s in zip(wanted, x.shape, strict=False) if w != s]
        return len(wanted) == len(x.shape) and (not unlike or [w for w, _ in unlike] == [-1])
    node = producer_of(target)
    if node is None or node.op_type != "Shape" or node.inputs[0] is not x:
        return False
    return not node.attributes.get_int("start", 0) and "end" not in node.attributes


def _quotient(node: ir.Node) -> FusedNode | None:
    powers, total = node.inputs
    exp, summed = producer_of(powers), reduced_by("ReduceSum", total)
    if exp is None or exp.op_type != "Exp" or summed is None or summed.x is not powers:
        return None
    difference = producer_of(exp.inputs[0])
    if difference is None or difference.op_type != "Sub" or len(summed.axes) != 1:
        return None
    x, largest = difference.inputs[0], reduced_by("ReduceMax", difference.inputs[1])
    if x is None or x.shape is None or x.dtype != ir.DataType.FLOAT or largest is None:
        return None
    if largest.x is not x or largest.axes != summed.axes:
        return None
    return _softmax(node, [x], summed.axes[0] - len(x.shape))


def _softmax(last: ir.Node, leaves: Sequence[ir.Value], axis: int) -> FusedNode | None:
    nodes = inner_nodes(last, leaves)
    return None if nodes is None else FusedNode(nodes, "Softmax", leaves[:1], {"axis": axis})
