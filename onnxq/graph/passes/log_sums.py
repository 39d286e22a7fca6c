"""The logarithm of a sum in one node becomes the two, so that what the logarithm reads is seen."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant, replace
from onnxq.operator.nodes import find_input, input_at

_AXES = "axes"  # an attribute before opset 18, input 1 since; input 1 of ReduceSum since 13


class TakeLogSumsApart(ir.passes.InPlacePass):
    """ReduceLogSum(x) = Log(ReduceSum(x)), with the same axes; all graphs, float32 alone.

    A logarithm magnifies errors of small numbers, which are told by the sums that it reads. The Log
    keeps the node's name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Takes all of them apart."""
        found = [node for node in all_nodes(model) if _is_log_sum(node)]
        names = FreeNames(model) if found else None
        for node in found:
            assert names is not None
            _take_apart(node, names)
        return ir.passes.PassResult(model, modified=bool(found))


def _is_log_sum(node: ir.Node) -> bool:
    is_float = node.outputs[0].dtype == ir.DataType.FLOAT
    return is_float and (node.domain, node.op_type) == ("", "ReduceLogSum")


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
