"""Scaled dot product attention."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import dequantize, quantize
from onnxq.errors import ShapeError
from onnxq.operator.examples import normal
from onnxq.operator.nodes import has_input
from onnxq.operators._function import lower_around
from onnxq.operators._heads import merge_heads, split_heads

OP = "Attention"
MASK, PAST_KEY, PAST_VALUE, PAD_LENGTHS = 3, 4, 5, 6  # input slots
SCORES = 3  # output slot
HEADS_APART = 4  # rank of (batch, heads, length, size); 3: (batch, length, heads * size)
LOWEST = np.finfo(np.float32).min  # what ONNX Runtime takes for minus infinity


@op.register
class Attention(op.Operator):
    """Y = softmax(Q K^T * scale + mask) V per head; ONNX Attention-23.

    Q, K and V are (batch, heads, length, size), or (batch, length, heads * size) with their numbers
    of heads as attributes; several heads of Q may share one of K and V. ONNX Runtime has no integer
    kernel: it computes in float32 between integers; the mask, past and present keys and values are
    float. (PyTorch's exporter writes MatMul and Softmax up to opset 22, which run in integers.)
    """

    op_type = OP

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Q, K and V are activations."""
        if any(value.name or value.uses() for value in node.outputs[SCORES:]):
            return op.Float.because("its scores are read too")
        if has_input(node, PAD_LENGTHS):
            return op.Float.because(
                "it is given the lengths of its keys, which onnxq has no kernel for"
            )
        return op.Rule(
            op.OpCategory.ELEMENTWISE,
            activations=(0, 1, 2),
            precision=op.Precision.FLOAT_BETWEEN_QDQ,
        )

    def cases(self) -> Iterable[op.Case]:
        q, k, v = normal(2, 4, 5, 8), normal(2, 4, 6, 8, seed=1), normal(2, 4, 6, 3, seed=2)
        mask = normal(5, 6, seed=3)
        yield op.Case("plain", (q, k, v), opset=23)
        yield op.Case("scale", (q, k, v), (), {"scale": 0.5}, opset=23)
        yield op.Case("heads share keys", (q, k[:, :2], v[:, :2]), opset=23)
        yield op.Case("float mask", (q, k, v, mask), (3,), opset=23)
        yield op.Case("bool mask", (q, k, v, mask > -1), (3,), opset=23)
        some = np.arange(30).reshape(5, 6) % 4 > 0
        some[2] = False
        yield op.Case("a row masked throughout", (q, k, v, some), (3,), opset=23)
        lowest = np.where(some, 0, np.finfo(np.float32).min).astype(np.float32)
        yield op.Case("lowest float as mask", (q, k, v, lowest), (3,), opset=23)
        yield op.Case("causal", (q, k, v), (), {"is_causal": 1}, opset=23)
        yield op.Case("softcap", (q, k, v), (), {"softcap": 0.7}, opset=23)
        together = (normal(2, 5, 32), normal(2, 6, 16, seed=1), normal(2, 6, 6, seed=2))
        heads = {"q_num_heads": 4, "kv_num_heads": 2}
        yield op.Case("heads side by side", together, (), heads, opset=23)
        past = (normal(2, 4, 3, 8, seed=4), normal(2, 4, 3, 3, seed=5))
        yield op.Case("past", (q, k, v, None, *past), (), outputs=3, opset=23)
        every = {"is_causal": 1, "softcap": 0.7}
        masked = (q, k, v, normal(5, 9, seed=3), *past)
        yield op.Case("past, causal, softcap, mask", masked, (), every, outputs=3, opset=23)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return lower_around(site)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        """Integers of Y; present keys and values in float32 where the plan has a slot for them."""
        q, k, v = (dequantize(call.integers(i), call.qparams_in(i)) for i in range(3))
        packed = q.ndim != HEADS_APART
        if packed:
            kv_heads = call.integer("kv_num_heads", 0)
            q = _split_heads(q, call.integer("q_num_heads", 0))
            k, v = _split_heads(k, kv_heads), _split_heads(v, kv_heads)
        rest = [*call.inputs[MASK:], None, None, None]
        with call.shape_errors():
            past = 0 if rest[1] is None else rest[1].shape[2]
            k, v = _behind(rest[1], k), _behind(rest[2], v)
            y = _attention(call, q, k, v, rest[0], past)
        if packed:
            y = merge_heads(y)
        results = (quantize(y, call.qparams_out()), k, v)
        return results[: len(call.plan.outputs)]


def _split_heads(x: op.Singles, heads: int) -> op.Singles:
    """(batch, heads, length, size) of (batch, length, heads * size)."""
    if x.ndim != HEADS_APART - 1 or heads < 1 or x.shape[2] % heads:
        raise ShapeError(
            f"{OP}: an operand of shape {x.shape} with {heads} heads; wanted (batch, heads, "
            "length, size), or (batch, length, heads * size) with q_num_heads and kv_num_heads."
        )
    return split_heads(x, heads)


def _behind(past: op.Array | None, x: op.Singles) -> op.Singles:
    return x if past is None else np.concatenate([past.astype(np.float32), x], axis=2)


def _attention(
    call: op.NodeCall, q: op.Singles, k: op.Singles, v: op.Singles, mask: op.Array | None, past: int
) -> op.Singles:
    """softmax(q k^T * scale + mask) v; scores in float32, so that a mask of -3e38 swallows them.

    A row that is masked throughout, by False, -inf or the lowest float32, gives 0.
    """
    if k.shape[1] < 1 or q.shape[1] % k.shape[1] or k.shape[1] != v.shape[1]:
        raise call.shape_error(
            f"{q.shape[1]} heads of Q, {k.shape[1]} of K, {v.shape[1]} of V; "
            "wanted as many of V as of K, which divide those of Q."
        )
    if q.shape[3] < 1 or k.shape[3] != q.shape[3]:
        raise call.shape_error(f"heads of size {q.shape[3]} in Q, {k.shape[3]} in K.")
    shared = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(x.astype(np.float64), shared, axis=1) for x in (k, v))
    scale = call.real("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    scores: npt.NDArray[np.floating] = q.astype(np.float64) @ keys.swapaxes(2, 3) * scale
    softcap = call.real("softcap", 0.0)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores.astype(np.float32)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else np.add(scores, mask)
    if call.integer("is_causal", 0):
        rows, columns = scores.shape[2:]
        scores = np.where(np.tri(rows, columns, past, dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    masked = top <= LOWEST
    weights = np.exp(scores.astype(np.float64) - np.where(masked, 0, top))
    weights = np.where(masked, 0, weights / np.where(masked, 1, weights.sum(-1, keepdims=True)))
    return np.asarray(weights @ values, np.float32)
