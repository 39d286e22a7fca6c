"""Softmax that an exporter or a converter wrote out in several nodes becomes one Softmax-13."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant, replace
from onnxq.graph.exchange import ConstantExchange
from onnxq.graph.passes.formulas import producer_of
from onnxq.graph.passes.fused_node import FusedNode, fuse_all, inner_nodes
from onnxq.graph.passes.reductions import reduced_by
from onnxq.graph.weights import constant
from onnxq.operator.nodes import find_input, has_input, input_at
from onnxq.operator.site import MICROSOFT

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


# --- com.microsoft Attention gets the bias that its schema calls optional and its kernels do
#     not


_WEIGHT, _BIAS = 1, 2  # slots
_MATRIX = 2


class GiveAttentionBias(ir.passes.InPlacePass):
    """X W = X W + 0, where there is no bias and the columns of W are known; all graphs.

    ONNX Runtime 1.31 reads the absent bias and ends the process.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        bare = [node for node in all_nodes(model) if _is_bare(node)]
        exchange = ConstantExchange(model)
        for node in bare:
            weight = input_at(node, _WEIGHT)
            assert weight.shape is not None
            columns = weight.shape[1]
            assert isinstance(columns, int)
            zeros = np.zeros(columns, np.float32)
            exchange.put(node, _BIAS, ir.tensor(zeros), f"{weight.name}_no_bias", ("zeros", weight))
        exchange.share()
        return ir.passes.PassResult(model, bool(bare))


def _is_bare(node: ir.Node) -> bool:
    if (node.domain, node.op_type) != (MICROSOFT, "Attention") or has_input(node, _BIAS):
        return False
    weight = find_input(node, _WEIGHT)
    if weight is None or weight.shape is None or len(weight.shape) != _MATRIX:
        return False
    return isinstance(weight.shape[1], int)


# --- The logarithm of a sum in one node becomes the two, so that what the logarithm reads is
#     seen


_AXES = "axes"  # an attribute before opset 18, input 1 since; input 1 of ReduceSum since 13


class TakeLogSumsApart(ir.passes.InPlacePass):
    """ReduceLogSum(x) = Log(ReduceSum(x)), with the same axes; all graphs, float32 alone.

    A logarithm magnifies errors of small numbers, which are told by the sums that it reads. The Log
    keeps the node's name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        sums = [n for n in all_nodes(model) if (n.domain, n.op_type) == ("", "ReduceLogSum")]
        found = [node for node in sums if node.outputs[0].dtype == ir.DataType.FLOAT]
        names = FreeNames(model) if found else None
        for node in found:
            assert names is not None
            _take_apart(node, names)
        return ir.passes.PassResult(model, modified=bool(found))


def _take_apart(node: ir.Node, names: FreeNames) -> None:
    y, axes = node.outputs[0], find_input(node, 1)
    given = node.attributes.get_ints(_AXES, [])
    if given:
        axes = new_constant(node, names.value(f"{y.name}_axes"), np.array(given, np.int64))
    kept = {name: a for name, a in node.attributes.items() if name != _AXES}
    inputs = [input_at(node, 0), *([] if axes is None else [axes])]
    summed = ir.Node("", "ReduceSum", inputs, kept.values(), name=names.node(f"{node.name}_sum"))
    (total,) = summed.outputs
    total.name, total.type, total.shape = names.value(f"{y.name}_sum"), y.type, y.shape
    graph_of(node).insert_before(node, summed)
    replace(node, ir.node("Log", [total], name=node.name), names)
