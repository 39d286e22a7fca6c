"""Integers of a weight by a method: `prepared` once per input, then row by row in any order.

Rows are solved apart from each other, so that they may be cut into parts for workers or for memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onnxq.core.arrays import Singles
from onnxq.dynamic.known_inputs import UNKNOWN, Known
from onnxq.errors import CalibrationError
from onnxq.qparams import MIN_SCALE
from onnxq.qparams.group_ranges import in_groups, rounded, search_ranges, unshrunk
from onnxq.qparams.group_spec import GroupSpec, Method, Scheme
from onnxq.qparams.groups import GroupIntegers, Points, concatenated
from onnxq.weights.gptq import Places, change_in_turn, gptq, inverse_factor
from onnxq.weights.hessian import Hessian, InputHessians


class RowSolver(Protocol):
    """Solver of rows of a weight; it can be pickled, and sent to workers."""

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class InParts:
    """Solver of rows whose inputs are solved part by part."""

    solvers: Sequence[tuple[slice, RowSolver]]

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        return concatenated(
            [solver(np.ascontiguousarray(rows[:, part]), spec) for part, solver in self.solvers]
        )


def prepared(
    method: Method, inputs: InputHessians | None = None, known: Known = UNKNOWN
) -> RowSolver:
    """The solver of all weights that read one input."""
    if method.needs_samples and inputs is None:
        raise CalibrationError(
            f"method '{method.value}' needs samples; give some, or ask for hqq or rtn."
        )
    if method is Method.GPTQ:
        assert inputs is not None, "just looked"
        solvers = [(part, GroupwiseGPTQ.of(inputs.of_part(part))) for part in inputs.parts]
        return solvers[0][1] if len(solvers) == 1 else InParts(solvers)
    return HalfQuadratic(known) if method is Method.HQQ else Nearest(alike=known.alike)


# --- Integers from what the model alone tells: errors count by what norms make of inputs; no
#     data
#
#     least over s, z of    sum_i p_i e_i^2        e_i = w_i - (q_i - z) s,   p_i of `known_inputs`
#
# Real zero points are those of half-quadratic quantization (Badri and Shaji, 2023): a sum of
# squares
# spends itself on the few large weights, while a sum of lesser powers leaves them their errors. It
# is
# split in two, with d the errors that are allowed:
#
#     least over z of       sum_i p_i |e_i|^r         r < 1
#     d = shrink(w - (q - z) s)        z = mean(q - (w - d) / s)
#
# A group keeps the zero point of least squares where that has the lesser sum of powers. Whole zero
# points stay those of least squares: the step to the next one is too wide for what there is to
# gain,
# and ranges searched by sums of powers lose up to 2 dB. Scales of a row are raised then
# (`unshrunk`).


POWER = 0.7
STRENGTH, GROWTH = 10.0, 1.01
"""Penalty on errors that are not allowed, in the units of a group's largest weight, and its growth
from one iteration to the next: those of the authors."""
ITERATIONS = 20
SMALL = np.float32(1e-8)


@dataclass(frozen=True, slots=True)
class HalfQuadratic:
    """Solver of rows by what the model tells of their inputs."""

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


# --- GPTQ in groups: rows rounded towards what the float model gives, all errors made up for
#
# With x what a layer reads in the float model and xq in the quantized one, the weight nearest to
# W x from xq, held to W by damping r, is
#
#     W* = (W C + r W) (H + r I)^-1         H = E[xq xq'], C = E[x xq']
#
# and an error D of it costs D (H + r I) D'. Three steps, each of which lowers that cost or leaves
# it:
#
# 1. ranges of groups, searched with the diagonal of H as what errors count;
# 2. GPTQ: columns of large diagonal of H first, each error made up for in those still to come;
# 3. in turns, integers that lower the cost one by one, all others held, and the scales of least
# squares;
#    so are real zero points.


PERCDAMP = 0.01
"""Damping, as a share of the mean diagonal of H: the samples are not the world."""
LEAST_DAMPING = 1e-30
"""Damping of an input that is always 0, whose weights are rounded to the nearest then."""
STRIPE = 512
"""Rows of H that are divided together: what is in between is no larger than they are."""
ROUNDS = 4
"""Turns of integers and scales; each is as dear as GPTQ."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupwiseGPTQ:
    """Solver of rows by GPTQ.

    Attributes:
        hessian: float32 (inputs, inputs), H + r I.
        act_order: int64 (inputs,), those of the largest diagonal first.
        upper: float32 (inputs, inputs), in that act_order: U of (H + r I)^-1 = U' U.
        towards: float32 (inputs, inputs), M of W* = W + W M; None: W* is W.
    """

    hessian: Singles
    act_order: Places
    upper: Singles
    towards: Singles | None

    @classmethod
    def of(cls, seen: Hessian, percdamp: float = PERCDAMP) -> GroupwiseGPTQ:
        """The solver for an input."""
        hessian, size = seen.shrunk(), len(seen.matrix)
        damping = max(percdamp * float(np.trace(hessian)) / size, LEAST_DAMPING)
        factor = inverse_factor(hessian, damping)
        towards = None
        if seen.cross is not None:
            towards = np.empty((size, size), np.float32)
            for start in range(0, size, STRIPE):
                some = slice(start, start + STRIPE)
                towards[some] = factor.divided(seen.shrunk_difference(some))
        upper = np.asarray(factor.upper, np.float32)
        damped = hessian.astype(np.float32)
        np.fill_diagonal(damped, (np.diagonal(hessian) + damping).astype(np.float32))
        return cls(damped, factor.act_order, upper, towards)

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        target = rows if self.towards is None else rows + rows @ self.towards
        diagonal = np.diagonal(self.hessian)
        scale, point = search_ranges(target, spec, diagonal / diagonal.max())
        work = _Work(target, spec, scale, point.astype(np.float32))
        work.compensate(self.act_order, self.upper)
        for _ in range(ROUNDS):
            work.fit_scales(self.hessian)
            if spec.scheme is Scheme.REAL:
                work.fit_points(self.hessian)
            work.improve_integers(self.hessian, self.act_order)
        return work.integers


class _Work:
    """Rows while they are solved: what they aim at, centred integers, and scales."""

    def __init__(self, target: Singles, spec: GroupSpec, scale: Singles, point: Singles) -> None:
        self._target, self._spec = target, spec
        self._scale, self._point = scale, point
        self._group_of = np.arange(target.shape[1]) // spec.group_size
        self._centred = np.zeros_like(target, order="F")  # columns as a whole

    @property
    def integers(self) -> GroupIntegers:
        integers = np.rint(self._centred + self._point[:, self._group_of]).astype(np.uint8)
        is_real = self._spec.scheme is Scheme.REAL
        point = self._point if is_real else self._point.astype(np.uint8)
        return GroupIntegers(self._spec, integers, self._scale, point)

    def compensate(self, act_order: Places, upper: Singles) -> None:
        """GPTQ on the ranges as they are."""

        def round_column(j: int, column: Singles) -> Singles:
            i = act_order[j]
            q = self._nearest(column, self._group_of[i])
            self._centred[:, i] = q
            return q * self._scale[:, self._group_of[i]]

        gptq(self._target, act_order, upper, round_column)

    def _nearest(self, column: Singles, group: int) -> Singles:
        """Centred integers of a column."""
        point = self._point[:, group]
        raw = np.rint(column / self._scale[:, group] + point)
        return np.asarray(np.clip(raw, 0, self._spec.most) - point, np.float32)

    def improve_integers(self, hessian: Singles, act_order: Places) -> None:
        """One integer after the other, at the least cost with all others held.

        The gradient G = (W* - Q) H says by how much: column j of W* - Q becomes G_j / H_jj less.
        """
        scale = self._scale[:, self._group_of]
        left = self._target - self._centred * scale
        gradient = (left @ hessian).T.copy()
        diagonal = np.diagonal(hessian)
        for start in range(0, len(act_order), STRIPE):
            some = act_order[start : start + STRIPE]

            def step(k: int, part: Singles, some: Places = some) -> Singles:
                i = some[k]
                group = self._group_of[i]
                wanted = self._centred[:, i] * self._scale[:, group] + part / diagonal[i]
                q = self._nearest(wanted, group)
                moved = (q - self._centred[:, i]) * self._scale[:, group]
                self._centred[:, i] = q
                return moved

            steps = gradient[some]
            change_in_turn(steps, hessian[np.ix_(some, some)], step)
            gradient -= hessian[:, some] @ steps

    def fit_scales(self, hessian: Singles) -> None:
        """Scales of least squares, group after group, with all others held."""
        spec = self._spec
        left = self._target - self._centred * self._scale[:, self._group_of]
        gradient, changes = left @ hessian, np.empty_like(left)
        for group in range(self._scale.shape[1]):
            part = slice(group * spec.group_size, (group + 1) * spec.group_size)
            q = self._centred[:, part]
            under = np.einsum("ri,ri->r", q @ hessian[part, part], q)
            propagated = changes[:, : part.start] @ hessian[: part.start, part]
            over = np.einsum("ri,ri->r", gradient[:, part] - propagated, q)
            step = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
            new = self._scale[:, group] + step
            keeps = new * np.sign(self._scale[:, group]) > MIN_SCALE
            new = np.where(keeps, new, self._scale[:, group])
            changes[:, part] = (new - self._scale[:, group])[:, np.newaxis] * q
            self._scale[:, group] = new

    def fit_points(self, hessian: Singles) -> None:
        """Real zero points of least squares, group after group, with integers and scales held."""
        starts = np.arange(0, len(hessian), self._spec.group_size)
        by_group = np.add.reduceat(hessian, starts, axis=1)
        between = np.add.reduceat(by_group, starts, axis=0)
        left = self._target - self._centred * self._scale[:, self._group_of]
        gradient = left @ by_group
        for group in range(len(starts)):
            total = max(float(between[group, group]), LEAST_DAMPING)
            shift = gradient[:, group] / np.float32(total)
            gradient -= np.outer(shift, between[group])
            moved = shift / self._scale[:, group]
            self._point[:, group] -= moved
            self._centred[:, self._group_of == group] += moved[:, np.newaxis]


# --- Round to nearest: every weight by itself, in the range of its group with the least error
#
# Scales of a row are raised then, so that rounding makes its weights no smaller.


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """Solver of rows by rounding to nearest.

    Attributes:
        power: float32 (inputs,), what an error of each input's weight counts; None: all the same.
        alike: of `search_ranges`.
    """

    power: Singles | None = None
    alike: float = 0.0

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        made = rounded(rows, spec, *search_ranges(rows, spec, self.power, self.alike))
        return unshrunk(rows, made, self.power)
