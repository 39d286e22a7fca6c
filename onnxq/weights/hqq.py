"""Integers from what the model alone tells: errors count by what norms make of inputs; no data.

    least over s, z of    sum_i p_i e_i^2        e_i = w_i - (q_i - z) s,   p_i of `known_inputs`

Real zero points are those of half-quadratic quantization (Badri and Shaji, 2023): a sum of squares
spends itself on the few large weights, while a sum of lesser powers leaves them their errors. It is
split in two, with d the errors that are allowed:

    least over z of       sum_i p_i |e_i|^r         r < 1
    d = shrink(w - (q - z) s)        z = mean(q - (w - d) / s)

A group keeps the zero point of least squares where that has the lesser sum of powers. Whole zero
points stay those of least squares: the step to the next one is too wide for what there is to gain,
and ranges searched by sums of powers lose up to 2 dB. Scales of a row are raised then (`unshrunk`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.dynamic.known_inputs import UNKNOWN
from onnxq.qparams import MIN_SCALE
from onnxq.qparams.group_ranges import in_groups, rounded, search_ranges, unshrunk
from onnxq.qparams.group_spec import Scheme

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.dynamic.known_inputs import Known
    from onnxq.qparams.group_spec import GroupSpec
    from onnxq.qparams.groups import GroupIntegers, Points

POWER = 0.7
STRENGTH, GROWTH = 10.0, 1.01
"""Penalty on errors that are not allowed, in the units of a group's largest weight, and its growth
from one iteration to the next: those of the authors."""
ITERATIONS = 20
SMALL = np.float32(1e-8)


@dataclass(frozen=True, slots=True)
class HalfQuadratic:
    """Solver of rows by what the model tells of their inputs.

    Attributes:
        known: of the input, without samples.
    """

    known: Known = UNKNOWN

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        power, alike = self.known.power, self.known.alike
        scale, point = search_ranges(rows, spec, power, alike)
        if spec.scheme is Scheme.REAL and not alike:
            there = np.ones(rows.shape[1], np.float32) if power is None else power
            p = in_groups(there[np.newaxis], spec.group_size)
            groups = _Groups(in_groups(rows, spec.group_size), p, scale[..., np.newaxis], spec.most)
            point = groups.shrunk(point[..., np.newaxis])
        return unshrunk(rows, rounded(rows, spec, scale, point), power)


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Groups whose zero points are moved.

    Attributes:
        w: float32 (rows, groups, group).
        p: float32 (1, groups, group), what errors count; 0 where groups are filled up.
        scale: float32 (rows, groups, 1).
        most: the largest integer.
    """

    w: Singles
    p: Singles
    scale: Singles
    most: int

    def shrunk(self, point: Points) -> Singles:
        """The better zero point of each group, float32 (rows, groups), of a given one and ours."""
        z: Points = point
        unit = np.maximum(np.abs(self.w).max(-1, keepdims=True), MIN_SCALE)
        total = np.maximum(self.p.sum(-1, keepdims=True), MIN_SCALE)
        strength = STRENGTH
        for _ in range(ITERATIONS):
            q = self._integers(z)
            allowed = _shrink((self.w - (q - z) * self.scale) / unit, strength) * unit
            z = (self.p * (q - (self.w - allowed) / self.scale)).sum(-1, keepdims=True) / total
            strength *= GROWTH
        better = self._cost(z) < self._cost(point)
        return np.asarray(np.where(better, z, point)[..., 0], np.float32)

    def _integers(self, point: Points) -> Singles:
        raw = np.rint(self.w / self.scale + point)
        return np.asarray(np.clip(raw, 0, self.most), np.float32)

    def _cost(self, point: Points) -> Singles:
        """Sum of powers of the errors of each group, (rows, groups, 1)."""
        left = np.abs(self.w - (self._integers(point) - point) * self.scale)
        weighted = self.p ** np.float32(POWER / 2) * left ** np.float32(POWER)
        return np.asarray(weighted.sum(-1, keepdims=True), np.float32)


def _shrink(x: Singles, strength: float) -> Singles:
    """Rest of errors that cost |e|^r: 0 of small ones, nearly all of large ones."""
    size = np.abs(x)
    cut = np.float32(1 / strength) * (size + SMALL) ** np.float32(POWER - 1)
    return np.asarray(np.sign(x) * np.maximum(size - cut, 0), np.float32)
