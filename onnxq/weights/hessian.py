"""Hessians of layers' squared errors, from their inputs: H = E[x x'] over all rows x.

    E|W x - V xq|^2 = tr(W F W') - 2 tr(V C' W') + tr(V H V')
    H = E[xq xq'], C = E[x xq'], F = E[x x']

x is what a layer reads in the float model, xq in the quantized one, where weights ahead of it have
errors already. Products of rows are summed batch after batch: in float32 each, in float64 together.

    H of all inputs              up to some 6,400 inputs
    H of each part by itself     beyond: down projections of 11,008 or 14,336 inputs

Four parts of H take a fourth of what H takes. What is between the parts is not seen: errors in one
are not made up for in another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.core.arrays import Reals, Singles
from onnxq.errors import CalibrationError
from onnxq.qparams.group_spec import GROUP_SIZES

PartHessians = Sequence[tuple[slice, "Hessian"]]
"""(part, its Hessian) of all parts of the inputs."""


STRIPE = 1024
"""Inputs whose products with all others are made at a time: beside the sum no more than these are
in memory."""
MOST_BYTES = 1_500_000_000
"""Bytes of the Hessian of one input, and of what is made of it."""
SOLVER_BYTES, MAKING_BYTES = 12, 24
"""Bytes of a solver of gptq per pair of inputs, and more while it is made: three matrices of
float32, and what they are made from in float64."""


class HessianSum:
    """Sum of x x' over rows x, symmetric: stripes of it are computed from the diagonal on.

    Args:
        inputs: numbers of a row.
        groups: sizes of the axes ahead, one sum for each; none: one sum.
    Attributes:
        count: of the rows so far.
    """

    def __init__(self, inputs: int, groups: tuple[int, ...] = ()) -> None:
        self.count = 0
        self._sum = np.zeros((*groups, inputs, inputs))

    def add(self, rows: Singles) -> None:
        """Adds float32 (*groups, rows, inputs)."""
        self.count += rows.shape[-2]
        for start in range(0, rows.shape[-1], STRIPE):
            stripe = slice(start, start + STRIPE)
            across = np.swapaxes(rows[..., stripe], -1, -2)
            self._sum[..., stripe, start:] += across @ rows[..., start:]

    def mean(self) -> Reals:
        """float64 (*groups, inputs, inputs), in place: the sum takes no more rows."""
        h = self._sum
        for start in range(0, h.shape[-1], STRIPE):
            end = min(start + STRIPE, h.shape[-1])
            corner = np.triu(h[..., start:end, start:end])
            h[..., start:end, start:end] = corner + np.swapaxes(np.triu(corner, 1), -1, -2)
            h[..., end:, start:end] = np.swapaxes(h[..., start:end, end:], -1, -2)
        h /= self.count
        return h


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """Shares of a Hessian that are chance, from 0 to 1, of few rows.

    Attributes:
        covariance: share of the covariance of the rows.
        mean: share of the product of their mean with itself.
    """

    covariance: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Hessian:
    """Means over rows of one input.

    Attributes:
        matrix: float64 (inputs, inputs), H = E[xq xq'].
        cross: float64 (inputs, inputs), C = E[x xq'] of the float model's x; None: x is xq.
        mean: float64 (inputs,), E[xq].
        wanted_mean: float64 (inputs,), E[x]; None: x is xq.
        shrinkage: as `shrinkage_of` has it.
    """

    matrix: Reals
    cross: Reals | None
    mean: Reals
    wanted_mean: Reals | None
    shrinkage: Shrinkage

    @classmethod
    def unknown(cls, inputs: int) -> Hessian:
        """The Hessian of an input without rows: all its numbers count alike."""
        return cls(np.eye(inputs), None, np.zeros(inputs), None, Shrinkage(1.0, 1.0))

    def shrunk(self) -> Reals:
        """H without what is chance in it; a copy.

            (1 - a) S + (1 - b) m m' + (a tr(S) + b |m|^2) / p I         H = S + m m'

        S is the covariance, m the mean of p inputs, a and b the shares that are chance.
        """
        shares, size = self.shrinkage, len(self.matrix)
        kept, power = 1 - shares.covariance, float(self.mean @ self.mean)
        made = kept * self.matrix
        _add_outer(made, (1 - shares.mean - kept) * self.mean, self.mean)
        covered = shares.covariance * (float(np.trace(self.matrix)) - power)
        made[np.diag_indices(size)] += (covered + shares.mean * power) / size
        return made

    def shrunk_difference(self, rows: slice) -> Reals:
        """Rows of C - H without what is chance in it; `cross` is there."""
        assert self.cross is not None
        assert self.wanted_mean is not None
        shares = self.shrinkage
        kept = 1 - shares.covariance
        made = kept * (self.cross[rows] - self.matrix[rows])
        apart = (1 - shares.mean - kept) * (self.wanted_mean - self.mean)
        return np.asarray(made + apart[rows, np.newaxis] * self.mean)


def _add_outer(matrix: Reals, column: Reals, row: Reals) -> None:
    """Adds column row', stripe by stripe: no second matrix is in memory."""
    for start in range(0, len(matrix), STRIPE):
        some = slice(start, start + STRIPE)
        matrix[some] += column[some, np.newaxis] * row


def shrinkage_of(matrix: Reals, mean: Reals, rows: int, third: Reals, fourth: float) -> Shrinkage:
    """Shares of a Hessian that are chance, of so few rows: Ledoit and Wolf (2004).

        S = H - m m'       s = tr(S) / p       d2 = |S - s I|^2 / p
        b2 = (E|x - m|^4 - |S|^2) / ((n - 1) p)
        covariance = min(b2 / d2, 1)           mean = min(tr(S) / ((n - 1) |m|^2), 1)

    b2 is the variance of S as an estimate: p inputs from n rows have b2 of about s^2 p / n. It is
    taken about the mean, which would else stand out as a pattern that makes all of H look known.
    One row tells of no other: its shares are 1. `matrix` is H, `mean` m, `rows` n, `third`
    E[|x|^2 x], `fourth` E|x|^4.
    """
    if rows < 2:
        return Shrinkage(1.0, 1.0)
    size, power, trace = len(matrix), float(mean @ mean), float(np.trace(matrix))
    along = float(mean @ matrix @ mean)
    spread = max(trace - power, 0.0)
    squares = max(float(np.vdot(matrix, matrix)) - 2 * along + power * power, 0.0)
    about = fourth + 4 * along - 3 * power * power - 4 * float(third @ mean) + 2 * power * trace
    distance = squares / size - (spread / size) ** 2
    variance = max(about - squares, 0.0) / ((rows - 1) * size)
    return Shrinkage(
        min(variance / distance, 1.0) if distance > 0 else 1.0,
        min(spread / ((rows - 1) * power), 1.0) if power > 0 else 1.0,
    )


class InputSums:
    """Sums of one tensor that layers read, in the quantized model beside the float one."""

    def __init__(self, name: str, inputs: int, *, has_cross: bool) -> None:
        self.name, self._sum = name, HessianSum(inputs)
        self._cross = np.zeros((inputs, inputs)) if has_cross else None
        self._wanted_sum = np.zeros(inputs) if has_cross else None
        self._first, self._third, self._fourth = np.zeros(inputs), np.zeros(inputs), 0.0

    def add(self, seen: Singles, wanted: Singles | None) -> None:
        """Adds rows.

        Args:
            seen: float32 (rows, inputs), in the quantized model.
            wanted: likewise in the float model; None: the same.
        """
        if not len(seen):
            return
        for rows in (seen,) if wanted is None else (seen, wanted):
            if not can_be_summed(rows):
                raise CalibrationError(
                    f"tensor '{self.name}', which linear layers read, holds NaN, Inf, or numbers "
                    "whose squares overflow float32; look at the samples and at what the float "
                    "model makes of them."
                )
        self._sum.add(seen)
        norms = np.einsum("ri,ri->r", seen, seen, dtype=np.float64)
        self._first += seen.sum(0, dtype=np.float64)
        self._third += norms @ seen
        self._fourth += float(np.square(norms).sum())
        if self._cross is not None and self._wanted_sum is not None and wanted is not None:
            self._wanted_sum += wanted.sum(0, dtype=np.float64)
            for start in range(0, seen.shape[1], STRIPE):
                stripe = slice(start, start + STRIPE)
                self._cross[stripe] += wanted[:, stripe].T @ seen

    @property
    def count(self) -> int:
        """Rows so far."""
        return self._sum.count

    def hessian(self) -> Hessian:
        """The means; the sums are theirs then, and take no more rows."""
        if not self._sum.count:
            raise CalibrationError(
                f"tensor '{self.name}', which linear layers read, has no rows in any sample. Give "
                "samples with tokens."
            )
        matrix, rows = self._sum.mean(), self._sum.count
        if self._cross is not None:
            self._cross /= rows
        mean = self._first / rows
        wanted = None if self._wanted_sum is None else self._wanted_sum / rows
        shares = shrinkage_of(matrix, mean, rows, self._third / rows, self._fourth / rows)
        return Hessian(matrix, self._cross, mean, wanted, shares)


def can_be_summed(rows: Singles) -> bool:
    """Whether the products of rows are all finite, and so are their sums."""
    if not len(rows):
        return True
    limit = math.sqrt(float(np.finfo(np.float32).max) / len(rows))
    # NaN is the largest of any numbers, and below none
    return max(float(rows.max()), -float(rows.min())) <= limit


@dataclass(frozen=True, slots=True, eq=False)
class InputHessians:
    """Hessians of an input, part by part; as long as the pipeline stands at its layers.

    Attributes:
        parts: of the inputs, in order; each but the last one ends with a group, whatever its size.
        of_part: gives the Hessian of a part; a solver asks for one at a time.
    """

    parts: tuple[slice, ...]
    of_part: Callable[[slice], Hessian]

    @classmethod
    def whole(cls, hessian: Hessian) -> InputHessians:
        """The Hessian of an input that is known already, as one part."""
        return cls((slice(0, len(hessian.matrix)),), lambda _: hessian)

    def all(self) -> list[tuple[slice, Hessian]]:
        """(part, its Hessian) of all parts."""
        return [(part, self.of_part(part)) for part in self.parts]


def noise_in(difference: Reals, hessians: PartHessians) -> float:
    """tr(D H D'): what an error D of a weight is in its results."""
    some = (difference[:, part] for part, _ in hessians)
    pairs = zip(some, hessians, strict=True)
    return sum(float(np.einsum("oi,oi->", d @ each.matrix, d)) for d, (_, each) in pairs)


def parts_of_inputs(inputs: int) -> tuple[slice, ...]:
    """The fewest parts of so many inputs for which a solver of gptq fits into MOST_BYTES.

    SOLVER_BYTES * inputs * part + MAKING_BYTES * part^2 <= MOST_BYTES
    """
    half = SOLVER_BYTES * inputs / (2 * MAKING_BYTES)
    most = math.sqrt(half * half + MOST_BYTES / MAKING_BYTES) - half
    if inputs <= most:
        return (slice(0, inputs),)
    largest = max(GROUP_SIZES)
    room = max(1, int(most) // largest)  # in groups of the largest size
    blocks = -(-inputs // largest)
    count = -(-blocks // room)
    width = -(-blocks // count) * largest
    return tuple(slice(start, min(start + width, inputs)) for start in range(0, inputs, width))
