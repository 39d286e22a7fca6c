"""ZeroAnchoredHistogram: bounded counts of any number of values, that merge exactly in any order.

Bins are [k w, (k+1) w) with w = 2^exponent / bins, anchored at zero; 2^exponent is the smallest
power of two above every |x| seen. A value's place is j = floor(x/w) + ceil(x/w): even, 2k, for x =
k w exactly, odd, 2k + 1, inside the bin. So values at the edges of the bins, among them
zeros, the 6 of ReLU6 and the pixels of images, are counted apart from those that are spread over
the bin.

The state depends on nothing but the multiset of counted values (all of them, or part of a large
tensor: see _every_kth): scaling by a power of two is exact, counts are int64, and making bins twice
as wide is a sum of counts, since floor(floor(y) / 2) = floor(y / 2), and k 2w = x exactly where 2k
w = x did.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Singles
from onnxq.errors import CalibrationError
from onnxq.observers._every_kth import Counted
from onnxq.observers._saved_arrays import array_of, integers_of, min_max_of

Counts = npt.NDArray[np.int64]

# all smaller tensors share these bins: 2^-exponent must not overflow float32, and scales never get
# there
MIN_EXPONENT = -80
MAX_EXPONENT = 128  # every float32 is below 2^128
MOST_VALUES = 2.0**62  # counts of several runs can still be added
MOST_KEPT = 1 << 12  # values that are kept as they are: 16 KiB, where counts take 128
_CHUNK = 1 << 15  # elements; the buffers below (512 KiB) and the counts stay in a 1 MiB L2 cache
_POINTS = 4  # of another histogram's bin, which is up to 4 times as wide
_NOTHING = np.empty(0, np.float32)
_TINY = np.float32(0.5)


class _Buffers(threading.local):
    """Scratch space of one thread: page faults of fresh arrays would cost more than counting."""

    def __init__(self) -> None:
        self.floor = np.empty(_CHUNK, np.float32)
        self.ceil = np.empty(_CHUNK, np.float32)
        self.place = np.empty(_CHUNK, np.intp)


_buffers = _Buffers()


class ZeroAnchoredHistogram:
    """Counts at places -2 bins < j < 2 bins.

    The first MOST_KEPT values are kept, not counted: graphs of thousands of small tensors would
    take more memory for empty bins than for all else. A deep copy shares the counts until one of
    the two goes on.

    Args:
        bins: bins of each sign between 0 and 2^exponent; a power of two.
    Attributes:
        exponent: see the module; MIN_EXPONENT while empty.
    """

    def __init__(self, bins: int) -> None:
        self.bins = bins
        self.exponent = MIN_EXPONENT
        self.minimum, self.maximum = np.float32(np.inf), np.float32(-np.inf)
        self._kept: tuple[tuple[Singles, int], ...] = ()  # values, and how often each counts
        self._counts: Counts | None = None
        self._is_shared = False

    def __deepcopy__(self, _: object) -> Self:
        self._is_shared = self._counts is not None
        return copy.copy(self)

    @property
    def counts(self) -> Counts:
        """int64 (4 bins,), to be read only; place j at counts[j + 2 bins]."""
        if self._counts is not None:
            return self._counts
        counts = np.zeros(4 * self.bins, np.int64)
        for values, weight in self._kept:
            self._count(values, weight, counts)
        return counts

    def own_counts(self) -> Counts:
        """The counts, to be changed."""
        counts = self.counts
        self._counts = counts.copy() if self._is_shared else counts
        self._kept, self._is_shared = (), False
        return self._counts

    def _count(self, values: Singles, weight: int, counts: Counts) -> None:
        per_width = np.float32(1 / self.width)
        for start in range(0, values.size, _CHUNK):
            places = _places(values[start : start + _CHUNK], per_width, self.bins)
            # NumPy's fast path: faster than bincount, and no temporary
            np.add.at(counts, places, weight)

    @property
    def width(self) -> float:
        """Width of a bin, a power of two."""
        return float(np.ldexp(1.0, self.exponent)) / self.bins

    def add(self, x: Singles, minimum: np.float32, maximum: np.float32) -> None:
        """Counts every value of x."""
        self.add_counted(Counted(x.ravel(order="K"), _NOTHING, 1, minimum, maximum))

    def add_counted(self, counted: Counted) -> None:
        """Counts the values of a tensor, or what is counted of a large one."""
        minimum, maximum = counted.low, counted.high
        largest = max(-minimum, maximum)
        if largest > 0:  # frexp has exponent 0 for zero: bins coarser than the numbers to come
            self.coarsen(max(MIN_EXPONENT, math.frexp(largest)[1]))
        self.minimum, self.maximum = min(self.minimum, minimum), max(self.maximum, maximum)
        found = ((counted.part, counted.weight), (counted.far, 1))
        size = sum(x.size for x, _ in (*self._kept, *found))
        if self._counts is None and size <= MOST_KEPT:
            self._kept += tuple((x.copy(), weight) for x, weight in found if x.size)
            return
        counts = self.own_counts()
        for x, weight in found:
            self._count(x, weight, counts)

    def add_even(self, counts: Counts, low: np.float32, high: np.float32) -> None:
        """Counts what another histogram has counted, each bin as _POINTS values spread over it."""
        edges = np.linspace(low, high, _POINTS * counts.size + 1, dtype=np.float64)
        middles = ((edges[:-1] + edges[1:]) / 2).astype(np.float32)
        shares = np.repeat(counts, _POINTS) // _POINTS
        shares.reshape(-1, _POINTS)[:, 0] += counts % _POINTS
        largest = max(-low, high)
        if largest > 0:
            self.coarsen(max(MIN_EXPONENT, math.frexp(largest)[1]))
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        per_width, counts_here = np.float32(1 / self.width), self.own_counts()
        for start in range(0, middles.size, _CHUNK):
            places = _places(middles[start : start + _CHUNK], per_width, self.bins)
            np.add.at(counts_here, places, shares[start : start + _CHUNK])

    def coarsen(self, exponent: int) -> None:
        """Doubles the width of the bins until the exponent is at least the one given."""
        doublings = exponent - self.exponent if self._counts is not None else 0
        counts = self.own_counts() if doublings > 0 else np.zeros(0, np.int64)
        # after as many doublings as there are bits in `bins`, every count is in the two bins around
        # 0
        for _ in range(min(doublings, self.bins.bit_length() + 1)):
            zero = 2 * self.bins
            negative = np.zeros(zero, np.int64)
            negative[1:] = counts[zero - 1 : 0 : -1]  # place -m at m: floor + ceil is odd in x
            positive = _pairs(counts[zero:])
            counts[zero - 1 : 0 : -1] = _pairs(negative)[1:]
            counts[zero:] = positive
        self.exponent = max(self.exponent, exponent)

    def merged(self, other: Self) -> Self:
        """A new histogram of what both counted; their numbers of bins are equal."""
        result, addend = copy.deepcopy(self), copy.deepcopy(other)
        result.coarsen(other.exponent)
        addend.coarsen(self.exponent)
        counts = result.own_counts()
        counts += addend.counts
        result.minimum = min(self.minimum, other.minimum)
        result.maximum = max(self.maximum, other.maximum)
        return result

    def absolute(self) -> ZeroAnchoredHistogram:
        """The histogram of the absolute values: a new one."""
        result, zero = ZeroAnchoredHistogram(self.bins), 2 * self.bins
        result.exponent = self.exponent
        counts, own = self.counts, result.own_counts()
        own[zero:] = counts[zero:]
        own[zero + 1 :] += counts[zero - 1 : 0 : -1]
        result.maximum = max(-self.minimum, self.maximum)
        result.minimum = max(self.minimum, -self.maximum, np.float32(0))
        return result

    def dense(self) -> tuple[int, Counts]:
        """(first, counts): counts[i] is that of place first + i; from first to last occupied."""
        counts = self.counts
        occupied = np.flatnonzero(counts)
        if occupied.size == 0:
            return 0, np.zeros(0, np.int64)
        first, last = int(occupied[0]), int(occupied[-1])
        return first - 2 * self.bins, counts[first : last + 1].copy()

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """{"exponent", "first": int64 (), "counts": int64 (places,), "min", "max": float32 ()}."""
        first, counts = self.dense()
        return {
            "exponent": np.asarray(self.exponent, np.int64),
            "first": np.asarray(first, np.int64),
            "counts": counts,
            "min": np.asarray(self.minimum),
            "max": np.asarray(self.maximum),
        }

    @classmethod
    def from_state(
        cls, bins: int, state: Mapping[str, npt.NDArray[np.generic]]
    ) -> ZeroAnchoredHistogram:
        """Histogram of what `state` gave."""
        result = cls(bins)
        result.exponent = int(array_of(state, "exponent", "iu", (0,)))
        counts = integers_of(state, "counts", 1)
        start = int(array_of(state, "first", "iu", (0,))) + 2 * bins
        low, high = min_max_of(state, 0)
        largest = max(-low, high) if low <= high else np.float32(0)
        consistent = (
            MIN_EXPONENT <= result.exponent <= MAX_EXPONENT
            and 0 <= start <= start + counts.size <= 4 * bins
            and largest <= np.ldexp(1.0, result.exponent)
            and counts.any() == bool(low <= high)
            and counts.sum(dtype=np.float64) < MOST_VALUES
        )
        if not consistent:
            raise CalibrationError(
                f"saved state: exponent {result.exponent}, {counts.size} counts from {start} on "
                f"and values from {low} to {high} are of no histogram of {bins} bins."
            )
        result.own_counts()[start : start + counts.size] = counts
        result.minimum, result.maximum = np.float32(low), np.float32(high)
        return result


def _places(x: Singles, per_width: np.float32, bins: int) -> npt.NDArray[np.intp]:
    """Where the counts of at most _CHUNK values are; overwritten by the next call."""
    floor, ceil = _buffers.floor[: x.size], _buffers.ceil[: x.size]
    place = _buffers.place[: x.size]
    np.multiply(x, per_width, out=ceil)
    if per_width < 1:  # subnormal numbers may vanish in the product, yet are not zeros
        vanished = (ceil == 0) & (x != 0)
        ceil[vanished] = np.copysign(_TINY, x[vanished])
    np.floor(ceil, out=floor)
    np.ceil(ceil, out=ceil)
    np.add(floor, ceil, out=floor)
    # indices are never negative: np.add.at's branch for those costs 3 ns when signs are mixed
    np.add(floor, np.float32(2 * bins), out=floor)
    np.copyto(place, floor, casting="unsafe")
    return place


def _pairs(counts: Counts) -> Counts:
    """Counts of one sign in bins twice as wide: same length, upper half zero.

    Places 4i .. 4i+3 are the edge 2i, the inside of bin 2i, the edge 2i+1, the inside of bin 2i+1;
    the first stays an edge, the other three become the inside of one bin.
    """
    quads = counts.reshape(-1, 4)
    result = np.zeros_like(counts)
    result[0 : counts.size // 2 : 2] = quads[:, 0]
    result[1 : counts.size // 2 : 2] = quads[:, 1:].sum(axis=1)
    return result
