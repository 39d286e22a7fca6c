"""GPTQ in groups: rows rounded towards what the float model gives, all errors made up for.

With x what a product reads in the float model and xq in the quantized one, the weight nearest to
W x from xq, held to W by damping r, is

    W* = (W C + r W) (H + r I)^-1         H = E[xq xq'], C = E[x xq']

and an error D of it costs D (H + r I) D'. Three steps, each of which lowers that cost or leaves it:

1. ranges of groups, searched with the diagonal of H as what errors count;
2. GPTQ: columns of large diagonal of H first, each error made up for in those still to come;
3. in turns, integers that lower the cost one by one, all others held, and the scales of least
squares;
   so are real zero points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.qparams import MIN_SCALE
from onnxq.qparams.group_ranges import search_ranges
from onnxq.qparams.group_spec import Scheme
from onnxq.qparams.groups import GroupIntegers
from onnxq.weights.gptq import BLOCK_SIZE, gptq, inverse_factor

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.qparams.group_spec import GroupSpec
    from onnxq.weights.gptq import Places
    from onnxq.weights.hessian import Hessian

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
        hessian, size = seen.matrix, len(seen.matrix)
        damping = max(percdamp * float(np.trace(hessian)) / size, LEAST_DAMPING)
        factor = inverse_factor(hessian, damping)
        towards = None
        if seen.cross is not None:
            towards = np.empty((size, size), np.float32)
            for start in range(0, size, STRIPE):
                some = slice(start, start + STRIPE)
                towards[some] = factor.divided(seen.cross[some] - hessian[some])
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
        self._centred = np.zeros_like(target)

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
        for start in range(0, len(act_order), BLOCK_SIZE):
            some = act_order[start : start + BLOCK_SIZE]
            part = gradient[some]
            near = hessian[np.ix_(some, some)]
            moved = np.zeros_like(part)
            for k, i in enumerate(some):
                group = self._group_of[i]
                wanted = self._centred[:, i] * self._scale[:, group] + part[k] / diagonal[i]
                q = self._nearest(wanted, group)
                step = (q - self._centred[:, i]) * self._scale[:, group]
                self._centred[:, i] = q
                part -= near[:, k, np.newaxis] * step
                moved[k] = step
            gradient -= hessian[:, some] @ moved

    def fit_scales(self, hessian: Singles) -> None:
        """Scales of least squares, group after group, with all others held."""
        spec = self._spec
        left = self._target - self._centred * self._scale[:, self._group_of]
        gradient = left @ hessian
        for group in range(self._scale.shape[1]):
            part = slice(group * spec.group_size, (group + 1) * spec.group_size)
            q = self._centred[:, part]
            near = q @ hessian[part, part]
            under = np.einsum("ri,ri->r", near, q)
            over = np.einsum("ri,ri->r", gradient[:, part], q)
            step = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
            new = self._scale[:, group] + step
            keeps = new * np.sign(self._scale[:, group]) > MIN_SCALE
            new = np.where(keeps, new, self._scale[:, group])
            change = (new - self._scale[:, group])[:, np.newaxis] * q
            gradient -= change @ hessian[part]
            self._scale[:, group] = new

    def fit_points(self, hessian: Singles) -> None:
        """Real zero points of least squares, group after group, with integers and scales held."""
        spec = self._spec
        gradient = (self._target - self._centred * self._scale[:, self._group_of]) @ hessian
        for group in range(self._scale.shape[1]):
            part = slice(group * spec.group_size, (group + 1) * spec.group_size)
            total = max(float(hessian[part, part].sum()), LEAST_DAMPING)
            shift = gradient[:, part].sum(1, keepdims=True) / np.float32(total)
            gradient -= shift * hessian[part].sum(0)
            moved = shift / self._scale[:, group, np.newaxis]
            self._point[:, group] -= moved[:, 0]
            self._centred[:, part] += moved
