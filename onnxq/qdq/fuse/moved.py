"""Q and DQ moved past nodes that only move data, as ONNX Runtime does before it fuses.

    Conv -> MaxPool -> Q        becomes     Conv -> Q -> DQ -> MaxPool -> Q
    DQ -> Reshape -> Conv       becomes     DQ -> Reshape -> Q -> DQ -> Conv

Exact: moving data, or taking a maximum, before or after rounding gives the same codes. What gains
is the Conv, which now stands between DQ and Q. ONNX Runtime's QDQPropagationTransformer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.qdq.read import Unread, is_dequantize, is_quantize
from onnxq.qparams import PerTensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxq.graph.edit import FreeNames
    from onnxq.qdq.fuse.scales import Scales
    from onnxq.qparams import QParams

# ONNX Runtime's own list: others, like Flatten or Expand, move data too, but it stops at them
PASSED = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def move_quantizers(graph: ir.Graph, scales: Scales, names: FreeNames) -> None:
    """Inserts Q -> DQ where a Q or DQ of the graph moves to."""
    for node in list(graph):
        if is_quantize(node):
            _move_up(node, scales, names)
    for node in list(graph):
        if is_dequantize(node):
            _move_down(node, scales, names)


def _move_up(quantize: ir.Node, scales: Scales, names: FreeNames) -> None:
    if _one_scale(quantize, scales) is None:
        return
    value = quantize.inputs[0]
    while value is not None and (passed := _alone(value, quantize)) is not None:
        value = passed.inputs[0]
        source = None if value is None else value.producer()
        if value is None or source is None or source.graph is not quantize.graph:
            return
        if is_dequantize(source) or len(value.uses()) != 1 or value.is_graph_output():
            return
        _insert(value, [(passed, 0)], quantize, names)


def _move_down(dequantize: ir.Node, scales: Scales, names: FreeNames) -> None:
    if _one_scale(dequantize, scales) is None:
        return
    work = [dequantize.outputs[0]]  # several readers: each has a DQ of its own in ONNX Runtime
    while work:
        value = work.pop()
        for reader in [use.node for use in value.uses()]:
            if not _passes(reader) or reader.graph is not dequantize.graph:
                continue
            result = reader.outputs[0]
            uses = [(u.node, u.idx) for u in result.uses() if not is_quantize(u.node)]
            if uses and not result.is_graph_output():
                work.append(_insert(result, uses, dequantize, names))


def _one_scale(node: ir.Node, scales: Scales) -> QParams | None:
    """The qparams of a Q or DQ where they are constant, one for the tensor."""
    qparams = scales.of(node)
    if isinstance(qparams, Unread) or qparams.granularity != PerTensor():
        return None
    return qparams


def _passes(node: ir.Node) -> bool:
    return node.op_type in PASSED and not node.domain


def _alone(value: ir.Value, reader: ir.Node) -> ir.Node | None:
    """The node that only moves data and makes the value, which nobody else reads."""
    producer = value.producer()
    if producer is None or not _passes(producer) or producer.graph is not reader.graph:
        return None
    alone = len(value.uses()) == 1 and not value.is_graph_output()
    return producer if alone else None


def _insert(
    value: ir.Value, uses: Iterable[tuple[ir.Node, int]], like: ir.Node, names: FreeNames
) -> ir.Value:
    """Inserts value -> Q -> DQ -> these uses, with the qparams of `like`; what the DQ gives."""
    producer = value.producer()
    assert producer is not None
    assert isinstance(producer.graph, ir.Graph)
    parameters = list(like.inputs[1:])
    codes = like.outputs[0] if is_quantize(like) else like.inputs[0]
    assert codes is not None
    quantize = ir.node(
        "QuantizeLinear",
        [value, *parameters],
        domain=like.domain,
        name=names.node(f"{value.name}_quantize"),
    )
    _describe(quantize.outputs[0], names.value(f"{value.name}_quantized"), codes.type, value.shape)
    dequantize = ir.node(
        "DequantizeLinear",
        [quantize.outputs[0], *parameters],
        domain=like.domain,
        name=names.node(f"{value.name}_dequantize"),
    )
    real = dequantize.outputs[0]
    _describe(real, names.value(f"{value.name}_dequantized"), value.type, value.shape)
    producer.graph.insert_after(producer, [quantize, dequantize])
    for reader, slot in uses:
        reader.replace_input_with(slot, real)
    return real


def _describe(
    value: ir.Value, name: str, kind: ir.TypeProtocol | None, shape: ir.Shape | None
) -> None:
    value.name, value.type, value.shape = name, kind, shape
