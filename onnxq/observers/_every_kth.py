"""EveryKth: the part of a large tensor that a histogram counts, and how far that can mislead it.

The first 16 batches are counted whole, so that a small calibration gives what it always gave. Of
later ones, those of N values at places i with i = o (mod k) are counted, each for k. o goes round
with the number of the batch, so that k batches of one shape count every place once. k is a prime
that divides no size of the tensor, so that it has no factor in common with the distance of two
neighbours along any axis: of every row, column and channel every k-th value is counted, never the
same few channels again and again. Both ends are exact.

How far off is the sum of k e(x) over counted values from E, that of e(x) over all, where e is the
squared error of a grid, say? For o uniform in 0..k-1 and places that say nothing of the values, its
mean is E. A batch has a variance of at most (k - 1) sum e^2, and of b batches b - 16 have one: at
their worst, b = 32, the whole has 1/64 of the variance of one batch, relative to E^2.

- *Rounding* to a grid of step s makes errors that are spread evenly over +-s/2. Squared, they have
  a mean square of 9/5 of their square mean: a deviation of sqrt(9/5 / n) of E in one batch, n being
  the values that are counted and that are no codes themselves. With LEAST = 16,384 of them that is
  1%, and 0.13% of the whole.
- *Clipping* at t adds (|x| - t)^2 of few values. Where m of those counted in a batch are beyond and
  their excess falls off exponentially, sum e^2 / (sum e)^2 = 6 / m: a deviation of sqrt(6 / m) of
  that part. One batch alone, with m = 2 or 3, would choose ranges that cost 0.3 dB on average and
  up to 2 dB. What is lost beside the least error grows with the square of the deviation, and 1/64
  of that is 0.03 dB.
- *A share* p of the values, of which a percentile is the inverse, has a deviation of
  sqrt((1 - p) / (p n)) of itself in one batch, and an eighth of that in the whole.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnxq.observers._range import chunks, ends_of, finite_range

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

LEAST = 1 << 14
"""Values of a tensor that are counted at least; those with fewer than three times as many are
counted whole."""
EARLY = 16
"""Batches that are counted whole."""
_STEPS = (61, 43, 31, 29, 23, 19, 17, 13, 11, 7, 5, 3)
"""Beyond 61, what counting costs is small beside finding the ends (0.05 of 0.4 ns per value)."""


class Counted(NamedTuple):
    """Values of a tensor that are counted.

    Attributes:
        part: float32 (count,).
        weight: values that each of them stands for.
        low: smallest value of the tensor.
        high: largest.
    """

    part: Singles
    weight: int
    low: np.float32
    high: np.float32


@dataclass(frozen=True, slots=True)
class EveryKth:
    """Places of a tensor, in C order: first, first + step, first + 2 step...

    Attributes:
        step: a prime, or 1.
        first: in 0..step-1.
    """

    step: int
    first: int

    @staticmethod
    def in_batch(shape: tuple[int, ...], index: int) -> EveryKth:
        """Places of a tensor of this shape that are counted in the batch with that number.

        They follow from shape and number alone, whatever shard the batch is in.
        """
        step = 1 if index < EARLY else _step(shape)
        return EveryKth(step, index % step)

    def read(self, x: Singles, index: int) -> Counted:
        """Values of x (not empty) that are counted; memory is read once.

        Raises:
            CalibrationError: NaN or Inf in x, the batch with that number.
        """
        if self.step == 1:  # any order has the same values; that of memory copies least
            return Counted(x.ravel(order="K"), 1, *finite_range(x, index))
        parts, ends = [], []
        for start, chunk in chunks(x.reshape(-1)):
            ends.append((chunk.min(), chunk.max()))
            parts.append(chunk[(self.first - start) % self.step :: self.step])
        return Counted(np.concatenate(parts), self.step, *ends_of(ends, x, index))


@functools.cache
def _step(shape: tuple[int, ...]) -> int:
    """The largest step that leaves LEAST values and divides no size."""
    size = 1
    for length in shape:
        size *= length
    fitting = (k for k in _STEPS if k * LEAST <= size and all(n % k for n in shape))
    return next(fitting, 1)
