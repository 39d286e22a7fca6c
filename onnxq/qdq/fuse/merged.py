"""Equal Q nodes of one tensor, and equal DQ nodes of the same codes, become one.

ONNX Runtime removes common subexpressions before it fuses, so that a tensor that two alike Q nodes
read has one reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.qdq.read import Unread, is_dequantize, is_quantize

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.qdq.fuse.scales import Scales


def merge_alike(graph: ir.Graph, scales: Scales) -> None:
    """Lets the readers of alike nodes read the first of them, and removes the others."""
    first: dict[tuple[object, ...], ir.Value] = {}
    for node in list(graph):
        if not (is_quantize(node) or is_dequantize(node)):
            continue
        qparams = scales.of(node)
        if isinstance(qparams, Unread):
            continue
        result = node.outputs[0]
        kept = first.setdefault((node.op_type, node.inputs[0], qparams), result)
        if kept is not result and not result.is_graph_output():
            result.replace_all_uses_with(kept)
            graph.remove(node, safe=True)
