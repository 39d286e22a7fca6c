"""EveryKth: the part of a large tensor that a histogram counts.

Of N values, those at places i with i = o (mod k) are counted, each for k. In the first 16 batches,
the few values near the minimum and the maximum are all counted, each for itself. o goes round with
the number of the batch, so that k batches of one shape count every place once. k is a prime that
divides no size of the tensor, so that it has no factor in common with the distance of two
neighbours along any axis: of every row, column and channel every k-th value is counted, never the
same few channels again and again. Minimum and maximum are exact.

How far that can mislead a histogram, and why 8,192 counted values are enough, is derived in
docs/why/numerics.md, under "Every k-th value".
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
