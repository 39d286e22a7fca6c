"""Of several equal quantizers of a tensor, one is left.

    x -> Q -> DQ, x -> Q -> DQ     becomes   x -> Q -> DQ, DQ

ONNX Runtime runs what computes x in integers if one Q, and nothing else, reads it. Modules that
quantize their inputs say the same Q once for each reader of a tensor.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxq.graph.edit import graph_of
from onnxq.qdq.read import array_of, is_quantize, qparams_of
from onnxq.qparams import QParams


def share_quantizers(model: ir.Model) -> None:
    """Of several equal Q of a tensor, and equal Clip on their codes, leaves one, in place."""
    for value in [*model.graph.inputs, *(y for node in model.graph for y in node.outputs)]:
        kept: list[ir.Node] = []
        for reader in list(value.consumers()):
            twin = next((node for node in kept if _equal(node, reader)), None)
            if twin is None:
                kept += [reader] if is_quantize(reader) or reader.op_type == "Clip" else []
                continue
            if reader.outputs[0].is_graph_output():
                continue
            _keep_first(twin, reader)


def _equal(one: ir.Node, other: ir.Node) -> bool:
    if one.op_type != other.op_type or one.inputs[0] is not other.inputs[0]:
        return False
    if is_quantize(one):
        qparams = qparams_of(one)
        return isinstance(qparams, QParams) and qparams == qparams_of(other)
    ends = [(array_of(one, slot), array_of(other, slot)) for slot in (1, 2)]
    return all(a is not None and b is not None and a == b for a, b in ends)


def _keep_first(twin: ir.Node, reader: ir.Node) -> None:
    reader.outputs[0].replace_all_uses_with(twin.outputs[0])
    graph = graph_of(reader)
    assert isinstance(graph, ir.Graph)
    graph.remove(reader, safe=True)
