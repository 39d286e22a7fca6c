"""Q and DQ moved past nodes that only move data, as ONNX Runtime does before it fuses.

    Conv -> MaxPool -> Q        becomes     Conv -> Q -> DQ -> MaxPool -> Q
    DQ -> Reshape -> Conv       becomes     DQ -> Reshape -> Q -> DQ -> Conv

Exact: moving data, or taking a maximum, before or after rounding gives the same integers. What
gains is the Conv, which now stands between DQ and Q. ONNX Runtime's QDQPropagationTransformer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.ort import facts
from onnxq.qdq.read import Unread, is_dequantize, is_quantize
from onnxq.qdq.write import graph_qparams_of, quantize_behind
from onnxq.qparams import PerTensor

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.graph.edit import FreeNames
    from onnxq.qdq.fuse.scales import Scales
    from onnxq.qparams import QParams


def move_quantizers(graph: ir.Graph, scales: Scales, names: FreeNames) -> None:
    """Inserts Q -> DQ where a Q or DQ of the graph moves to."""
    for node in list(graph):
        if is_quantize(node):
            _move_up(node, scales, names)
    for node in list(graph):
        if is_dequantize(node):
            _move_down(node, scales, names)


def _move_up(quantize: ir.Node, scales: Scales, names: FreeNames) -> None:
    qparams = _one_scale(quantize, scales)
    if qparams is None:
        return
    graph_qparams = graph_qparams_of(quantize, qparams)
    value = quantize.inputs[0]
    while value is not None and (passed := _alone(value, quantize)) is not None:
        value = passed.inputs[0]
        source = None if value is None else value.producer()
        if value is None or source is None or source.graph is not quantize.graph:
            return
        if is_dequantize(source) or len(value.uses()) != 1 or value.is_graph_output():
            return
        quantize_behind(value, graph_qparams, names, [(passed, 0)])


def _move_down(dequantize: ir.Node, scales: Scales, names: FreeNames) -> None:
    qparams = _one_scale(dequantize, scales)
    if qparams is None:
        return
    graph_qparams = graph_qparams_of(dequantize, qparams)
    work = [dequantize.outputs[0]]  # several readers: each has a DQ of its own in ONNX Runtime
    while work:
        value = work.pop()
        for reader in [use.node for use in value.uses()]:
            if not facts.of(reader).moved_past or reader.graph is not dequantize.graph:
                continue
            result = reader.outputs[0]
            uses = [(u.node, u.idx) for u in result.uses() if not is_quantize(u.node)]
            if uses and not result.is_graph_output():
                work.append(quantize_behind(result, graph_qparams, names, uses))


def _one_scale(node: ir.Node, scales: Scales) -> QParams | None:
    """The qparams of a Q or DQ where they are constant, one for the tensor."""
    qparams = scales.of(node)
    if isinstance(qparams, Unread) or qparams.granularity != PerTensor():
        return None
    return qparams


def _alone(value: ir.Value, reader: ir.Node) -> ir.Node | None:
    """The node that only moves data and makes the value, which nobody else reads."""
    producer = value.producer()
    if producer is None or not facts.of(producer).moved_past or producer.graph is not reader.graph:
        return None
    alone = len(value.uses()) == 1 and not value.is_graph_output()
    return producer if alone else None
