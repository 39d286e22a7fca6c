"""Half-quadratic quantization: ranges in which most weights lie near, and few far off; no data.

    least over z of    sum_i |w_i - (q_i - z) s|^p        p < 1

A sum of squares spends itself on the few large weights; this one leaves them their errors. It is
split in two, with e the errors that are allowed (Badri and Shaji, 2023):

    e = shrink(w - (q - z) s)        z = mean(q - (w - e) / s)

Beside 8-bit activations, MatMulNBits has whole zero points, so that z is rounded at the end, but
for scheme real, which is the authors'. A block keeps the range of least squares where that has the
lesser sum of powers. Scales of a row are raised then (`unshrunk`), as those of rtn are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.in_blocks.block_spec import Scheme
from onnxq.in_blocks.ranges import in_blocks, rounded, search_ranges, unshrunk
from onnxq.qparams import MIN_SCALE

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.in_blocks.block_codes import BlockCodes, Points
    from onnxq.in_blocks.block_spec import BlockSpec

POWER = 0.7
STRENGTH, GROWTH = 10.0, 1.01
"""Penalty on errors that are not allowed, in the units of a block's largest weight, and its growth
from one iteration to the next: those of the authors."""
ITERATIONS = 20
SMALL = np.float32(1e-8)


@dataclass(frozen=True, slots=True)
class HalfQuadratic:
    """Solver of rows by half-quadratic quantization.

    Attributes:
        alike: of `search_ranges`; where inputs are, ranges are its.
    """

    alike: float = 0.0

    def __call__(self, rows: Singles, spec: BlockSpec) -> BlockCodes:
        """Codes of float32 (rows, inputs)."""
        scale, point = search_ranges(rows, spec, alike=self.alike)
        if not spec.symmetric and not self.alike:
            scale, point = _shrunk(in_blocks(rows, spec.block), scale, point, spec)
        return unshrunk(rows, rounded(rows, spec, scale, point))


def _shrunk(w: Singles, scale: Singles, point: Points, spec: BlockSpec) -> tuple[Singles, Points]:
    """The better range of each block, (rows, blocks)."""
    s, z = scale[..., np.newaxis], point.astype(np.float32)[..., np.newaxis]
    unit = np.maximum(np.abs(w).max(-1, keepdims=True), MIN_SCALE)
    strength = STRENGTH
    for _ in range(ITERATIONS):
        q = np.clip(np.rint(w / s + z), 0, spec.most)
        allowed = _shrink((w - (q - z) * s) / unit, strength) * unit
        z = np.mean(q - (w - allowed) / s, axis=-1, keepdims=True)
        strength *= GROWTH
    found = z if spec.scheme is Scheme.REAL else np.clip(np.rint(z), 0, spec.most)
    before, after = (_cost(w, s, each, spec) for each in (point[..., np.newaxis], found))
    better = after < before
    best = np.where(better, found[..., 0], point).astype(np.float32)
    return scale, best if spec.scheme is Scheme.REAL else best.astype(np.uint8)


def _shrink(x: Singles, strength: float) -> Singles:
    """Rest of errors that cost |e|^p: 0 of small ones, nearly all of large ones."""
    size = np.abs(x)
    cut = np.float32(1 / strength) * (size + SMALL) ** np.float32(POWER - 1)
    return np.asarray(np.sign(x) * np.maximum(size - cut, 0), np.float32)


def _cost(w: Singles, scale: Singles, point: Points, spec: BlockSpec) -> Singles:
    """Sum of powers of the errors of each block, (rows, blocks)."""
    q = np.clip(np.rint(w / scale + point), 0, spec.most) - point
    return np.asarray((np.abs(w - q * scale) ** np.float32(POWER)).sum(-1), np.float32)
