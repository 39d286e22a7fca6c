"""Range of each block with the least squared error: scales are searched, then fitted.

    least over (s, z) of    sum_i p_i (w_i - (q_i - z) s)^2
    q_i = clip(rint(w_i / s) + z, 0, 2^bits - 1)

A range that holds every weight is too wide for the many that lie in its middle. So narrower ones
are tried, each with the two whole zero points around its centre; of the best one, the scale becomes
that of least squares for its codes, and these are rounded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.blocks.block_codes import BlockCodes
from onnxq.qparams import MIN_SCALE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.blocks.block_codes import Bytes
    from onnxq.blocks.block_spec import BlockSpec
    from onnxq.core.arrays import Singles

SHARES = {
    2: np.linspace(0.35, 1.0, 9, dtype=np.float32),
    4: np.linspace(0.64, 1.0, 7, dtype=np.float32),
    8: np.linspace(0.94, 1.0, 3, dtype=np.float32),
}
"""Parts of the whole range that are tried, by bits."""
NEAR = {
    2: np.linspace(0.94, 1.06, 5, dtype=np.float32),
    4: np.linspace(0.94, 1.06, 7, dtype=np.float32),
    8: np.ones(0, np.float32),
}
"""Factors of the best scale that are tried then, each with the zero points beside the best one."""
FITS = 2
"""Times that the scale is fitted and codes are rounded again; the error never grows."""
CHUNK = 1 << 15
"""Weights that are looked at together: the arrays of a try stay in a core's cache."""


def search_ranges(
    weight: Singles, spec: BlockSpec, importance: Singles | None = None
) -> tuple[Singles, Bytes]:
    """(scale, zero point) of each block, float32 and uint8 (rows, blocks).

    Args:
        weight: float32 (rows, inputs).
        spec: form of the codes.
        importance: float32 (inputs,), p above; None: 1.
    """
    w = in_blocks(weight, spec.block)
    p = None if importance is None else in_blocks(importance[np.newaxis], spec.block)
    scale = np.empty(w.shape[:2], np.float32)
    point = np.empty(w.shape[:2], np.uint8)
    rows = max(1, CHUNK // max(1, w[0].size)) if len(w) else 1
    for start in range(0, len(w), rows):
        part = slice(start, start + rows)
        scale[part], point[part] = _searched(w[part], p, spec)
    return scale, point


def rounded(weight: Singles, spec: BlockSpec, scale: Singles, point: Bytes) -> BlockCodes:
    """Codes nearest to a weight (rows, inputs) in given ranges."""
    block_of = np.arange(weight.shape[1]) // spec.block
    raw = np.rint(weight / scale[:, block_of]) + point[:, block_of]
    return BlockCodes(spec, np.clip(raw, 0, spec.most).astype(np.uint8), scale, point)


def in_blocks(weight: Singles, block: int) -> Singles:
    """float32 (rows, blocks, block), the last block filled up with zeros."""
    rows, inputs = weight.shape
    count = -(-inputs // block)
    if count * block == inputs:
        return np.asarray(weight, np.float32).reshape(rows, count, block)
    padded = np.zeros((rows, count * block), np.float32)
    padded[:, :inputs] = weight
    return padded.reshape(rows, count, block)


class _Best:
    """The range with the least error of each block so far; float32 (rows, blocks, 1).

    Args:
        w: float32 (rows, blocks, block).
        p: what errors count, broadcasts to w; None: all the same.
        most: the largest code.
    """

    def __init__(self, w: Singles, p: Singles | None, most: int) -> None:
        self._w, self._p, self._most = w, p, np.float32(most)
        self._work = np.empty_like(w)
        self.error = np.full((*w.shape[:2], 1), np.inf, np.float32)
        self.scale = np.ones_like(self.error)
        self.point = np.zeros_like(self.error)

    def codes(self, scale: Singles, point: Singles) -> Singles:
        """Centred codes, q - z; overwritten by the next call."""
        work = self._work
        np.multiply(self._w, np.float32(1) / scale, out=work)
        np.rint(work, out=work)
        np.maximum(work, -point, out=work)
        np.minimum(work, self._most - point, out=work)
        return work

    def offer(self, scale: Singles, point: Singles) -> None:
        """Takes the range where it is better."""
        left = self.codes(scale, point)
        left *= scale
        left -= self._w
        weighted = left if self._p is None else left * self._p
        error = np.einsum("rbi,rbi->rb", weighted, left)[..., np.newaxis]
        better = error < self.error
        np.copyto(self.error, error, where=better)
        np.copyto(self.scale, scale, where=better)
        np.copyto(self.point, point, where=better)

    def fit(self) -> None:
        """Offers the scales of least squares for the codes of the best ranges."""
        q = self.codes(self.scale, self.point)
        weighted = q if self._p is None else q * self._p
        over = np.einsum("rbi,rbi->rb", weighted, self._w)[..., np.newaxis]
        under = np.einsum("rbi,rbi->rb", weighted, q)[..., np.newaxis]
        good = (over > 0) & (under > 0)
        fitted = np.divide(over, under, out=self.scale.copy(), where=good)
        self.offer(np.maximum(fitted, MIN_SCALE), self.point)


def _searched(w: Singles, p: Singles | None, spec: BlockSpec) -> tuple[Singles, Bytes]:
    best = _Best(w, p, spec.most)
    low = np.minimum(w.min(-1, keepdims=True), 0)
    high = np.maximum(w.max(-1, keepdims=True), 0)
    with np.errstate(over="ignore"):
        for share in SHARES[spec.bits]:
            for scale, point in _ranges(low, high, share, spec):
                best.offer(np.maximum(scale, MIN_SCALE), point)
        scale, point = best.scale.copy(), best.point.copy()
        for factor in NEAR[spec.bits]:
            for shift in (0.0,) if spec.symmetric else (0.0, -1.0, 1.0):
                moved = np.clip(point + np.float32(shift), 0, spec.most)
                best.offer(np.maximum(scale * factor, MIN_SCALE), moved)
        for _ in range(FITS):
            best.fit()
    return best.scale[..., 0], best.point[..., 0].astype(np.uint8)


def _ranges(
    low: Singles, high: Singles, share: np.float32, spec: BlockSpec
) -> Iterator[tuple[Singles, Singles]]:
    """(scale, zero point) of that share of the whole range, around its centre."""
    if spec.symmetric:
        reach = np.maximum(high / np.float32(spec.middle - 1), -low / np.float32(spec.middle))
        yield share * reach, np.full_like(reach, spec.middle)
        return
    scale = np.maximum(share * (high - low) / np.float32(spec.most), MIN_SCALE)
    centre = np.clip(spec.most / 2 - (low + high) / 2 / scale, 0, spec.most)
    yield scale, np.floor(centre)
    yield scale, np.ceil(centre)
