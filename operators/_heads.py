"""Attention of several heads as com.microsoft has it: masks, scores, softmax, and how far off.

    Y = softmax(scale Q K^T + added) V per head

Q (B, N, S, H), K (B, N, T, H), V (B, N, T, H_v); T = P + S keys, the first P of them from the past.
ONNX Runtime computes in float32, in an order and with an exp of its own: `attend` computes in
float64 with the scores rounded where they are added to a mask, and `attention_bound` says how far
apart the two can be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.errors import UnsupportedError
from onnxq.operator import Array, NodeCall, Reals, Singles

Real = TypeVar("Real", bound=np.floating)

MASKED = -10000.0  # default of mask_filter_value
LOWEST = np.finfo(np.float32).min  # of keys in the future, whatever mask_filter_value is
HALF_ULP = 2.0**-24  # of float32, relative: one rounding
TINY = 2.0**-126  # ONNX Runtime's exp gives about this much where the true one is smaller
FAR = 80.0  # scores that uncertain say nothing; exp(80) is finite, and times 0 it is 0
ROUNDINGS = 16.0  # exp (8 ulps are enough), the sum, the division, the result; each twice


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """One attention.

    Attributes:
        q: (B, N, S, H).
        k: (B, N, T, H).
        v: (B, N, T, H_v).
        added: to the scores; broadcasts with (B, N, S, T). None: nothing.
    """

    q: Singles
    k: Singles
    v: Singles
    added: Singles | None
    scale: float


def split_heads(x: Singles, heads: int) -> Singles:
    """(B, heads, S, H) of (B, S, heads * H)."""
    b, s, width = x.shape
    return np.ascontiguousarray(x.reshape(b, s, heads, width // heads).swapaxes(1, 2))


def merge_heads(y: npt.NDArray[Real]) -> npt.NDArray[Real]:
    """(B, S, heads * H) of (B, heads, S, H)."""
    b, n, s, h = y.shape
    return np.ascontiguousarray(y.swapaxes(1, 2)).reshape(b, s, n * h)


def heads_of(
    call: NodeCall, parts: Sequence[Singles], mask: Array | None, past: Array | None
) -> Heads:
    """Q, K and V of every head, the past in front, and what the masks add.

    Args:
        call: with `num_heads`, `scale`, `mask_filter_value`, `unidirectional`.
        parts: Q, K and V, (B, S, heads * size) each.
        mask: as `added_mask` takes it.
        past: (2, B, heads, P, size), keys and values.
    """
    q, k, v = (split_heads(part, call.integer("num_heads", 0)) for part in parts)
    k, v = joined_with_past(call, past, k, v)
    added = added_mask(call, mask, (q.shape[0], q.shape[2], k.shape[2]))
    return Heads(q, k, v, added, usual_scale(call.real("scale", 0.0), q.shape[3]))


def added_mask(call: NodeCall, mask: Array | None, sizes: tuple[int, int, int]) -> Singles | None:
    """float32 (B, 1, S, T) that is added to the scores; None: there is no mask.

    Args:
        call: `mask_filter_value` is what a masked key gets; where `unidirectional` is 1, keys
            behind the row's own position get the lowest float32.
        mask: int32. (B,): keys from there on are masked; (2 B,): those before the second half, too;
            (3 B + 2,): as (B,), the rest is for other devices; (B, T) and (B, S, T): 0 is masked;
            (B, 1) and (1, 1): no mask.
        sizes: B, S, T.
    """
    batch, rows, keys = sizes
    hidden = None if mask is None else _masked(call, np.asarray(mask), sizes)
    late = call.integer("unidirectional", 0) == 1 and rows > 1
    if hidden is None and not late:
        return None
    found = np.zeros((batch, rows, keys), np.float32)
    if hidden is not None:
        filtered = call.real("mask_filter_value", MASKED)
        found[np.broadcast_to(hidden, found.shape)] = filtered
    if late:
        found[:, ~np.tri(rows, keys, keys - rows, dtype=bool)] = LOWEST
    return found[:, None]


def _masked(
    call: NodeCall, mask: Array, sizes: tuple[int, int, int]
) -> npt.NDArray[np.bool_] | None:
    """Which keys are masked: (B, 1 or S, T)."""
    batch, rows, keys = sizes
    if mask.dtype != np.int32:
        raise call.shape_error(f"mask_index has dtype {mask.dtype}; wanted int32.")
    values = mask.astype(np.int64)
    if mask.shape in ((batch,), (2 * batch,), (3 * batch + 2,)):
        lengths = values[:batch, None, None]
        if (lengths < 0).any():
            raise call.shape_error(f"mask_index has length {lengths.min()}; wanted 0 or more.")
        place = np.arange(keys)
        hidden = place >= lengths
        if mask.size == 2 * batch:
            hidden |= place < values[batch:, None, None]
        return hidden
    if mask.shape == (batch, keys):
        return np.asarray(values[:, None] <= 0)
    if mask.shape in ((batch, 1), (1, 1)):
        return None
    if mask.shape == (batch, rows, keys):
        return np.asarray(values <= 0)
    if mask.ndim == 4:
        raise UnsupportedError(
            f"{call.op_type}: mask_index of shape {mask.shape}; ONNX Runtime's CPU kernel takes up "
            f"to three axes. Give the mask as {sizes}."
        )
    raise call.shape_error(
        f"mask_index has shape {mask.shape}; wanted ({batch},), ({2 * batch},), "
        f"({batch}, {keys}) or {sizes}: batch, rows, keys."
    )


def joined_with_past(
    call: NodeCall, past: Array | None, k: Singles, v: Singles
) -> tuple[Singles, Singles]:
    """Keys and values, those of the past, (2, B, heads, P, H), in front: (B, heads, P + S, H)."""
    if past is None:
        return k, v
    batch, count, _, size = k.shape
    fits = past.ndim == 5 and (*past.shape[:3], past.shape[4]) == (2, batch, count, size)
    if past.dtype != np.float32 or not fits or v.shape != k.shape:
        raise call.shape_error(
            f"past is {past.dtype} of shape {past.shape}; wanted float32, "
            f"(2, {batch}, {count}, length, {size}), and V of K's size."
        )
    before = np.asarray(past, np.float32)
    return np.concatenate([before[0], k], axis=2), np.concatenate([before[1], v], axis=2)


def usual_scale(scale: float, size: int) -> float:
    """The attribute, or 1 / sqrt(size) in float32 where it is 0 or absent."""
    return scale or float(np.float32(1) / np.sqrt(np.float32(size)))


def attend(heads: Heads) -> Singles:
    """Y (B, N, S, H_v), float32."""
    weights, _ = _weights(_rounded(heads, _scores(heads)))
    return np.asarray(weights @ heads.v.astype(np.float64), np.float32)


def attention_bound(heads: Heads) -> Reals:
    """Largest difference of ONNX Runtime's Y from `attend`, of Y's shape.

        e[j] = (4 + sqrt(H)) u scale sum |q| |k[j]|         of a score's sum, u = 2^-24
        d[j] = max(round(s + e) - round(s), round(s) - round(s - e)) + u (max s - s[j])
        g[j] = exp(d[j]) / sum_i p[i] exp(-d[i]) - 1         of p[j] = exp(s[j]) / sum_i exp(s[i])
        |dY| <= sum_j p[j] |v[j]| (g[j] + (16 + 2 sqrt(T)) u)

    round() adds the mask in float32: sums near -10000 keep 2^-10, and next to the lowest float32
    nothing is left of a score. Sums of n terms in any order count as sqrt(n) roundings (Higham and
    Mary, 2019, "A New Approach to Probabilistic Rounding Error Analysis"). No weighted mean is
    further from another than the largest value of V.
    """
    scores = _scores(heads)
    size, keys = heads.q.shape[3], heads.k.shape[2]
    total = np.abs(heads.q.astype(np.float64)) @ np.abs(heads.k.astype(np.float64)).swapaxes(2, 3)
    error = total * (abs(heads.scale) * (4 + math.sqrt(size)) * HALF_ULP)
    middle = _rounded(heads, scores)
    off = np.maximum(
        _rounded(heads, scores + error) - middle, middle - _rounded(heads, scores - error)
    )
    weights, below = _weights(middle)
    off = np.minimum(off + HALF_ULP * below, FAR)
    growth = np.exp(off) / (weights * np.exp(-off)).sum(-1, keepdims=True) - 1
    values = np.abs(heads.v.astype(np.float64))
    found = (weights * (growth + (ROUNDINGS + 2 * math.sqrt(keys)) * HALF_ULP)) @ values
    largest = values.max(axis=2, keepdims=True, initial=0)
    return np.asarray(np.minimum(found, 2 * largest) + TINY * values.sum(axis=2, keepdims=True))


def _scores(heads: Heads) -> Reals:
    """Q K^T, scaled: (B, N, S, T)."""
    k = heads.k.astype(np.float64).swapaxes(2, 3)
    return np.asarray(heads.q.astype(np.float64) @ k * heads.scale)


def _rounded(heads: Heads, scores: Reals) -> Reals:
    """Scores and what is added to them, in float32; wide, to be computed with."""
    narrow = scores.astype(np.float32)
    total = narrow if heads.added is None else np.add(narrow, heads.added)
    return np.asarray(total, np.float64)


def _weights(scores: Reals) -> tuple[Reals, Reals]:
    """(softmax over the keys, how far each score is below the largest)."""
    below = scores.max(-1, keepdims=True, initial=float(LOWEST)) - scores
    weights = np.exp(-below)
    return np.asarray(weights / weights.sum(-1, keepdims=True)), np.asarray(below)
