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


@dataclass(frozen=True, slots=True, eq=False)
class Hessian:
    """Means over rows of one input.

    Attributes:
        matrix: float64 (inputs, inputs), H = E[xq xq'].
        cross: float64 (inputs, inputs), C = E[x xq'] of the float model's x; None: x is xq.
        shrinkage: share of H that is chance, from 0 to 1, as `shrinkage_of` has it.
    """

    matrix: Reals
    cross: Reals | None = None
    shrinkage: float = 0.0


def shrinkage_of(matrix: Reals, rows: int, fourth: float) -> float:
    """Share of a Hessian that is chance, of so few rows: Ledoit and Wolf (2004).

        m = tr(H) / p        d2 = |H - m I|^2 / p        b2 = (E|x|^4 - |H|^2) / ((n - 1) p)
        share = min(b2 / d2, 1)        (1 - share) H + share m I is nearest to the true E[x x']

    b2 is the variance of H as an estimate: p inputs from n rows have b2 of about m^2 p / n. One row
    tells of no other: its share is 1.
    """
    size = len(matrix)
    if rows < 2:
        return 1.0
    squares = float(np.square(matrix).sum())
    distance = squares / size - (float(np.trace(matrix)) / size) ** 2
    variance = max(fourth - squares, 0.0) / ((rows - 1) * size)
    return min(variance / distance, 1.0) if distance > 0 else 1.0


class InputSums:
    """Sums of one tensor that layers read, in the quantized model beside the float one."""

    def __init__(self, name: str, inputs: int, *, has_cross: bool) -> None:
        self.name, self._sum = name, HessianSum(inputs)
        self._cross = np.zeros((inputs, inputs)) if has_cross else None
        self._fourth = 0.0

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
        self._fourth += float(np.square(norms).sum())
        if self._cross is not None and wanted is not None:
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
        if self._cross is not None:
            self._cross /= self._sum.count
        matrix, rows = self._sum.mean(), self._sum.count
        return Hessian(matrix, self._cross, shrinkage_of(matrix, rows, self._fourth / rows))


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
