"""Equal quantizers of a tensor become one.

    x -> Q -> DQ, x -> Q -> DQ     becomes   x -> Q -> DQ, DQ

ONNX Runtime runs what computes x in integers if one Q, and nothing else, reads it. Modules that
quantize their inputs say the same Q once for each reader of a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.edit import merge_equal
from onnxq.qdq.read import array_of, is_quantize, qparams_of
from onnxq.qparams import QParams

if TYPE_CHECKING:
    from collections.abc import Hashable

    import onnx_ir as ir


def share_equal(model: ir.Model) -> None:
    """Leaves one of equal Q of a tensor, and of equal Clips of the same integers, in place."""
    merge_equal(model.graph, _said)


def _said(node: ir.Node) -> Hashable | None:
    if is_quantize(node):
        qparams = qparams_of(node)
        return (node.inputs[0], qparams) if isinstance(qparams, QParams) else None
    if node.op_type != "Clip" or node.domain:
        return None
    ends = [array_of(node, slot) for slot in (1, 2)]
    if any(end is None for end in ends):
        return None
    return (node.inputs[0], *(end.item() for end in ends if end is not None))
