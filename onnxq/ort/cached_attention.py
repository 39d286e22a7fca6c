"""ONNX Runtime's operators of decoders: attention with a cache, and rotary angles from a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.edit import all_nodes

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx_ir as ir

_DOMAIN = "com.microsoft"
_ATTENTION = "GroupQueryAttention"
_COSINES = {"RotaryEmbedding": 2, _ATTENTION: 7}
"""Operator -> the input that is the table of cosines, a row per position."""


def positions(model: ir.Model) -> int | None:
    """Rows of the shortest table of rotary angles; None: there is none to be read."""
    rows = []
    for node in all_nodes(model):
        slot = _COSINES.get(node.op_type) if node.domain == _DOMAIN else None
        if slot is None or slot >= len(node.inputs):
            continue
        table = node.inputs[slot]
        if table is not None and table.const_value is not None:
            rows.append(int(table.const_value.shape.numpy()[0]))
    return min(rows, default=None)


def query_heads(model: ir.Model) -> int | None:
    """Heads of queries of the first attention with a cache; None: there is none."""
    found = (node for node in all_nodes(model) if is_cached_attention(node))
    return next((node.attributes.get_int("num_heads") for node in found), None)


def head_size(model: ir.Model) -> int | None:
    """Numbers per head of the first attention with a cache; None: the graph does not say.

    Queries have them for every head; keys and values may stand behind them in one tensor.
    """
    for node in all_nodes(model):
        if not is_cached_attention(node):
            continue
        width = node.inputs[0].shape[-1] if node.inputs[0] and node.inputs[0].shape else None
        heads, kv_heads = (node.attributes.get_int(n, 0) for n in ("num_heads", "kv_num_heads"))
        if node.inputs[1] is None:
            heads += 2 * kv_heads
        if isinstance(width, int) and heads and width % heads == 0:
            return width // heads
    return None


def can_share(model: ir.Model, past: Collection[str]) -> bool:
    """Whether inputs with these names may be one buffer with the outputs that follow them.

    Only GroupQueryAttention writes new keys into the buffer that it reads the old ones from.
    """
    values = [value for value in model.graph.inputs if value.name in past]
    users = [use.node for value in values for use in value.uses()]
    return bool(users) and all(map(is_cached_attention, users))


def is_cached_attention(node: ir.Node) -> bool:
    """Whether the node computes attention, and keeps keys and values."""
    return (node.domain, node.op_type) == (_DOMAIN, _ATTENTION)
