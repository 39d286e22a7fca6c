"""ONNX Runtime's operators of decoders: attention with a cache, and rotary angles from a table."""

from collections.abc import Collection, Mapping

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.graph.edit import all_nodes
from onnxq.operator.nodes import tensor_of
from onnxq.operator.site import MICROSOFT
from onnxq.ort.node_kinds import MATMUL_NBITS

CACHE_RANK = 4
"""Rank of keys and values: (batch, heads, tokens, head)."""
_ATTENTION = "GroupQueryAttention"
_MATMULS = ("MatMul", "MatMulInteger")
_FIRST = ("Cast", "RotaryEmbedding", "SimplifiedLayerNormalization")
"""Operators whose result is as wide as the first of what they read."""
_WIDEST = ("Add", "Mul")
_DEQUANTIZING = ("Cast", "DequantizeLinear", "Mul", "Sub", "Transpose")
"""Operators between stored integers and a linear layer."""
_COSINES = {"RotaryEmbedding": 2, _ATTENTION: 7}
"""Operator -> the input that is the table of cosines, a row per position."""


def positions(model: ir.Model) -> int | None:
    """Rows of the shortest table of rotary angles; None: there is none to be read."""
    rows = []
    for node in all_nodes(model):
        slot = _COSINES.get(node.op_type) if node.domain == MICROSOFT else None
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
        width = _width(node.inputs[0])
        heads, kv_heads = (node.attributes.get_int(n, 0) for n in ("num_heads", "kv_num_heads"))
        if node.inputs[1] is None:
            heads += 2 * kv_heads
        if isinstance(width, int) and heads and width % heads == 0:
            return width // heads
    return None


def sliding_windows(model: ir.Model) -> dict[str, int]:
    """Input of a cache that slides -> tokens that it holds at least: ONNX Runtime wants so many."""
    found: dict[str, int] = {}
    for node in all_nodes(model):
        if is_cached_attention(node) and node.attributes.get_int("sliding_window_cache", 0) > 0:
            size: int = node.attributes.get_int("local_window_size", 0)
            found |= {str(value.name): size for value in node.inputs[3:5] if value is not None}
    return found


def with_windows(model: ir.Model, batch: Mapping[str, Array]) -> dict[str, Array]:
    """The batch, caches that slide as long as ONNX Runtime wants them."""
    grown = dict(batch)
    for name, size in sliding_windows(model).items():
        x = batch.get(name)
        if x is not None and x.ndim == CACHE_RANK and x.shape[2] < size:
            grown[name] = np.ones((*x.shape[:2], size, x.shape[3]), x.dtype)
    return grown


def _width(value: ir.Value | None) -> int | None:
    """Last size of a tensor; None: the graph does not say it.

    Files say no inferred types (`annotations`), and onnx infers none of com.microsoft: it is read
    off the linear layer that makes the tensor.
    """
    if value is None:
        return None
    last = value.shape[-1] if value.shape is not None and len(value.shape) else None
    node = value.producer()
    if isinstance(last, int) or node is None:
        return last if isinstance(last, int) else None
    if node.op_type == MATMUL_NBITS:
        return node.attributes.get_int("N", 0) or None
    if node.op_type == "Gemm":
        axis = 0 if node.attributes.get_int("transB", 0) else 1
        weight = _stored_shape(node.inputs[1])
        return weight[axis] if axis < len(weight) else None
    if node.op_type in _MATMULS:
        weight = _stored_shape(node.inputs[1])
        return weight[-1] if weight else None
    if node.op_type in _FIRST:
        return _width(node.inputs[0])
    if node.op_type in _WIDEST:
        return max(filter(None, map(_width, node.inputs)), default=None)
    return None


def _stored_shape(value: ir.Value | None) -> tuple[int, ...]:
    """Shape of a constant, also behind what dequantizes and turns it; empty: unknown."""
    if value is None or value.const_value is not None:
        return () if value is None else tuple(tensor_of(value).shape.numpy())
    node = value.producer()
    if node is None or node.op_type not in _DEQUANTIZING:
        return ()
    shape = _stored_shape(node.inputs[0])
    if node.op_type != "Transpose":
        return shape
    perm = node.attributes.get_ints("perm") or range(len(shape))[::-1]
    return tuple(shape[axis] for axis in perm) if len(perm) == len(shape) else ()


def can_share(model: ir.Model, past: Collection[str]) -> bool:
    """Whether inputs with these names may be one buffer with the outputs that follow them.

    Only GroupQueryAttention writes new keys into the buffer that it reads the old ones from.
    """
    values = [value for value in model.graph.inputs if value.name in past]
    users = [use.node for value in values for use in value.uses()]
    return bool(users) and all(map(is_cached_attention, users))


def is_cached_attention(node: ir.Node) -> bool:
    """Whether the node computes attention, and keeps keys and values."""
    return (node.domain, node.op_type) == (MICROSOFT, _ATTENTION)
