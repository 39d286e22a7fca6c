"""Tables that stay in float for the sake of the file: another reader keeps them there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.dynamic.reasons import TableInFloat
from onnxq.graph.walk import node_name, value_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import onnx_ir as ir

LOOKUP = "Gather"
"""The operator that takes rows of a table."""


def kept_in_float(
    node: ir.Node, quantized: Collection[ir.Node], twins: Mapping[ir.Value, ir.Value]
) -> TableInFloat | None:
    """Why a Gather whose precision nobody named stays float; None: it does not.

    Its integers would stand in the file beside the float table. They cost nothing where a product
    that is quantized stores them anyway.

    Args:
        node: one that would be quantized.
        quantized: all that would be.
        twins: of `find_twins`: the rewrite stores a float table and its transpose once.
    """
    table = node.inputs[0] if node.op_type == LOOKUP else None
    if table is None:
        return None
    tied = [table, *(v for pair in twins.items() if table in pair for v in pair if v is not table)]
    others = [use.node for v in tied for use in v.uses() if use.node.op_type != LOOKUP]
    floats = [other for other in others if other not in quantized]
    if not floats or len(floats) < len(others):
        return None
    return TableInFloat(value_name(table), node_name(floats[0]))
