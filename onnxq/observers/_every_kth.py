"""EveryKth: the part of a large tensor that a histogram counts, and how far that can mislead it.

Of N values, those at places i with i = o (mod k) are counted, each for k. In the first 16 batches,
the few values near the minimum and the maximum are all counted, each for itself. o goes round with
the number of the batch, so that k batches of one shape count every place once. k is a prime that
divides no size of the tensor, so that it has no factor in common with the distance of two
neighbours along any axis: of every row, column and channel every k-th value is counted, never the
same few channels again and again. Minimum and maximum are exact.

How far off is the sum of k e(x) over counted values from E, that of e(x) over all, where e is the
squared error of rounding, say? For o uniform in 0..k-1 and places that say nothing of the values,
its mean is E, and what is counted in full has no variance. The rest of a batch has

    variance <= (k - 1) sum e^2

- *Clipping* at t adds (|x| - t)^2 of the values beyond it. 8 bits cut off less than what
  is counted in full, so that their clipping is exact. Otherwise a few far values would decide, each
  counted k times or not at all. Later batches count far values as all others: of b batches, b - 16
  have a variance, 1/64 of that in one at most (b = 32), and what is lost beside the least error
  grows with the square of the deviation.
- Fewer bits clip more. Let m values that are counted in full lie beyond u > t, and B be
  the error of the others. Then E >= m (u - t)^2 + B, with a variance of (k - 1) (u - t)^2 B at
  most: the deviation is at most sqrt((k - 1) / (4 m)) of E, whatever the distribution.
- *Rounding* with scale s makes errors that are spread evenly over +-s/2. Squared, they have
  a mean square of 9/5 of their square mean: a deviation of sqrt(9/5 / n) of E, n being the values
  that are counted and that are no integers themselves. With LEAST = 8,192 of them that is 1.5%,
  with half of them zeros 2.1%. Scales that differ little err on the same values, so that their
  order hardly changes: one batch costs 0.1 dB at most in tests/observers/test_every_kth.py.
- *A share* p of the values, of which a percentile is the inverse, is exact within what is counted
  in full, and else has a deviation of sqrt((1 - p) / (p n)) of itself.

Rounding and shares are for one batch; b batches divide their deviation by sqrt(b).
"""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onnxq.core.arrays import Singles
from onnxq.observers.value_range import chunks, finite_range, min_max_of

LEAST = 1 << 13
"""Values of a tensor that are counted at least."""
WHOLE = 6 * LEAST
"""Tensors with fewer values are counted whole: what is gained there is below the rest of a run."""
EARLY = 16
"""Batches in which all far values are counted. Few batches need it; of many, they are enough."""
_STEPS = (97, 61, 43, 31, 29, 23, 19, 17, 13, 11, 7, 5)
"""Beyond 97, what counting costs is small beside finding the range (0.03 of 0.4 ns per value)."""
_FEW = 750
"""Values of a chunk, at least, whose second smallest and second largest are the bounds of what is
usual: some 0.2% of all are beyond each."""
_TWO = 2
"""Values that have a second smallest and a second largest one."""
_NOTHING = np.empty(0, np.float32)


class FarValues(enum.Enum):
    """The values near a batch's minimum and maximum."""

    ALL = "all"
    """Each is counted, for itself."""
    EVERY_KTH = "every k-th"
    """Far values are counted as all others."""


class Counted(NamedTuple):
    """Values that are counted of a tensor.

    Attributes:
        part: values that stand for `weight` values each; float32 (count,).
        far: values that stand for themselves, all outside of the range of `part`; (count,).
    """

    part: Singles
    far: Singles
    weight: int
    low: np.float32
    high: np.float32


@dataclass(frozen=True, slots=True)
class EveryKth:
    """Places of a tensor, in C order: first, first + step, first + 2 step..."""

    step: int
    first: int
    far_values: FarValues

    @staticmethod
    def in_batch(shape: tuple[int, ...], index: int) -> EveryKth:
        """Share that is counted of a tensor of this shape in the batch with that number.

        It follows from shape and number alone, whatever shard the batch is in.
        """
        step = _step(shape)
        far_values = FarValues.ALL if index < EARLY else FarValues.EVERY_KTH
        return EveryKth(step, index % step, far_values)

    def read(self, x: Singles, index: int) -> Counted:
        """Values of x (not empty) that are counted; memory is read once."""
        if self.step == 1:  # any order has the same values; that of memory copies least
            return Counted(x.ravel(order="K"), _NOTHING, 1, *finite_range(x, index))
        look = _every_kth if self.far_values is FarValues.EVERY_KTH else _with_all_far
        looks = [
            look(chunk, slice((self.first - start) % self.step, None, self.step))
            for start, chunk in chunks(x.reshape(-1))
        ]
        parts, far, ranges = zip(*looks, strict=True)
        low, high = min_max_of(ranges, x, index)
        return Counted(np.concatenate(parts), np.concatenate(far), self.step, low, high)


_Look = tuple["Singles", "Singles", tuple[np.float32, np.float32]]
"""(part, far values, (min, max)) of some values."""


def _every_kth(x: Singles, places: slice) -> _Look:
    """Part at these places; all far values count as the others."""
    return x[places], _NOTHING, (x.min(), x.max())


def _with_all_far(x: Singles, places: slice) -> _Look:
    """Part at these places, less what is far, and all values that are.

    The two comparisons that find them replace a search for minimum and maximum: each is a far
    value, or a bound of what is usual. NaN is far from all.
    """
    few = x[places][:: max(x.size // (places.step * _FEW), 1)]
    if few.size < _TWO:  # the last chunk of a tensor may have a handful of values
        return few[:0], x, (x.min(), x.max())
    few = np.partition(few, (1, -2))
    least, most = few[1], few[-2]
    usual = x >= least
    usual &= x <= most
    part = x[places][usual[places]]
    far = x[np.logical_not(usual, out=usual)]
    return part, far, (far.min(initial=least), far.max(initial=most))


@functools.cache
def _step(shape: tuple[int, ...]) -> int:
    """The largest step that leaves LEAST values and divides no size."""
    size = math.prod(shape)
    if size < WHOLE:
        return 1
    fitting = (k for k in _STEPS if k * LEAST <= size and all(n % k for n in shape))
    return next(fitting, 1)
