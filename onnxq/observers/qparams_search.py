"""The search for the scale and integer zero_point of least squared error, on a histogram.

Zeros cost nothing with any qparams, since 0 is always a level; the zero point that is
searched is QuantizeLinear's integer. (PyTorch's search moves min and max by mass, counts zeros as
if spread over their bin, and rounds the zero point afterwards.)

Of the qparams between PyTorch's and the best, the answer is the first whose error is within
TOLERANCE of the least (somewhat more for a small sample). Where the least lies is partly noise: a
few far values decide it, and others will be met later. Of what is as good on this sample, then, the
documented choice; or as little more as it takes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Reals
from onnxq.observers._bins import Counts, ZeroAnchoredHistogram
from onnxq.observers.value_range import QuantRange
from onnxq.qparams import QParams, per_tensor

MAX_SPAN = 4096  # above, rounding is negligible: clipping never pays, the range is taken whole
TOLERANCE = 0.015
"""Error above the least that counts as none, a share of it. Chosen on training images alone (draws
of 256 to calibrate, 4,000 held out): the tensors with more than 1.01 times the error of PyTorch's
observer go from 3.5 to 0.8 of 32 (ResNet-20) and 0.8 to 0.3 of 38 (MobileNetV2); the mean error
rises by less than 1% (benchmarks/results/observers.md). More tolerance costs more in the mean."""
FEW = 6.0
"""Share of noise in the least error of a sample, times the root of the number of values: below
160,000 values it exceeds TOLERANCE. The least of 0, 2, 4, 6, 8 with which the 16,384 pooled values
of ResNet-20 stay within 1.01 times PyTorch's error on each of 31 draws of 256 training images
(4,000 held out); 0 leaves 1.052 (benchmarks/results/observers.md)."""
MOST_TOLERANCE = 0.05
_WAY = np.linspace(0.0, 1.0, 41)  # from PyTorch's range, 0, to the best, 1
_ONE_SIDED_WAY = 0.1  # at least: PyTorch's count of zeros lowers the max of a ReLU's range
_CLIPS = 0.998  # smaller scales than that of the whole range cut something off, half an LSB or more
_COARSE = 0.75 ** np.arange(20.0)  # shares of the range: 1 down to 0.004
_COARSE_ONE_SIDED = 0.93 ** np.arange(96.0)


class _Stage(NamedTuple):
    """One round of the search: what to try around each of the best qparams so far."""

    keep: int
    """Best qparams to go on with."""
    scales: Reals
    """Factors of the scale."""
    shifts: I64Array
    """Changes of the zero point."""


# error is smooth in the scale but for the period of the levels; each stage covers the gaps of the
# one before
_STAGES = (
    _Stage(4, np.linspace(0.82, 1.22, 17), np.arange(-12, 13, 3)),
    _Stage(3, np.linspace(0.97, 1.03, 13), np.arange(-2, 3)),
    _Stage(2, np.linspace(0.996, 1.004, 9), np.arange(-1, 2)),
    _Stage(1, np.linspace(0.9993, 1.0007, 8), np.zeros(1, np.int64)),
)
_STAGES_ONE_SIDED = (
    _Stage(4, np.linspace(0.94, 1.06, 61), np.zeros(1, np.int64)),
    _Stage(3, np.linspace(0.997, 1.003, 31), np.zeros(1, np.int64)),
)


def search_qparams(histogram: ZeroAnchoredHistogram, integers: QuantRange) -> QParams:
    """The qparams of nearly the least squared error on what the histogram counted (not empty)."""
    widest = integers.qparams(histogram.minimum, histogram.maximum)
    nothing = histogram.minimum == histogram.maximum == 0
    if nothing or integers.span > MAX_SPAN or float(widest.scale) <= integers.eps:
        return widest
    moments = Moments(histogram)
    scale = float(widest.scale) / histogram.width
    if _lies_on_levels(moments, scale):
        return widest
    lattice = _lattice(moments, integers)
    if lattice is not None:
        return per_tensor(
            max(lattice[0] * histogram.width, integers.eps), lattice[1], integers.dtype
        )
    best = _least_error(moments, integers, scale, int(widest.zero_point))
    if best[0] < _CLIPS * scale:
        low, high = documented_range(histogram, moments, integers.span + 1)
        documented = integers.qparams(low, high)
        first = float(documented.scale) / histogram.width, int(documented.zero_point)
        best = _first_good(moments, integers, first, best)
    return per_tensor(max(best[0] * histogram.width, integers.eps), best[1], integers.dtype)


def _lies_on_levels(moments: Moments, scale: float) -> bool:
    """Whether every value lies within a bin's width of a multiple of scale: no search helps.

    True of images of 8-bit pixels, of masks and of one-hot vectors: counts inside a bin are not
    spread over it, so the error that the search would weigh is not there.
    """
    if scale < 8:  # bins too coarse to tell levels from spread values
        return False
    edges, bins = moments.occupied()
    off_edge = np.abs(edges - np.rint(edges / scale) * scale)
    off_bin = np.abs(bins + 0.5 - np.rint((bins + 0.5) / scale) * scale)
    return bool((off_edge <= 0.5).all() and (off_bin <= 1.0).all())


def _lattice(moments: Moments, integers: QuantRange) -> tuple[float, int] | None:
    """(scale, zero_point) that represents every value exactly, if all are multiples of one number.

    The scale is that number, or a whole fraction of it; integers left over go to both sides alike,
    as the values that calibration did not meet may.
    """
    edges, bins = moments.occupied()
    if bins.size or not edges.any():
        return None
    divisor = int(np.gcd.reduce(np.abs(edges)))
    low, high = min(int(edges[0]), 0) // divisor, max(int(edges[-1]), 0) // divisor
    if integers.qscheme.symmetric:
        above, below = integers.quant_max - integers.middle, integers.middle - integers.quant_min
        fraction = min(above // high if high else above, below // -low if low else below)
        return (divisor / fraction, integers.middle) if fraction else None
    fraction = integers.span // (high - low)
    if fraction < 1:
        return None
    spare = integers.span - (high - low) * fraction
    below = 0 if low == 0 else spare if high == 0 else spare // 2
    return divisor / fraction, integers.quant_min - low * fraction + below


def _least_error(
    moments: Moments, integers: QuantRange, widest: float, zero_point: int
) -> tuple[float, int]:
    """(scale, zero_point) of least error; scales in widths of a bin."""
    scale, zero = _first_qparams(moments, integers, widest, zero_point)
    tried = [(scale, zero, _errors(moments, integers, scale, zero))]
    for stage in _STAGES_ONE_SIDED if _fixed_zero(moments, integers) else _STAGES:
        chosen = _best_apart(*tried[-1], stage.keep)
        scale = tried[-1][0][chosen][:, None, None] * stage.scales[None, :, None]
        zero = tried[-1][1][chosen][:, None, None] + stage.shifts[None, None, :]
        scale, zero = (np.ascontiguousarray(a).ravel() for a in np.broadcast_arrays(scale, zero))
        zero = np.clip(zero, integers.quant_min, integers.quant_max)
        tried.append((scale, zero, _errors(moments, integers, scale, zero)))
    scale, zero, error = (np.concatenate(column) for column in zip(*tried, strict=True))
    best = int(np.argmin(error))
    return float(scale[best]), int(zero[best])


def _first_good(
    moments: Moments, integers: QuantRange, first: tuple[float, int], best: tuple[float, int]
) -> tuple[float, int]:
    """The first qparams on the way from `first` to `best` with an error near that of `best`."""
    scale, zero = _between(integers, first, best)
    if _fixed_zero(moments, integers):
        scale, zero = first[0] * (best[0] / first[0]) ** _WAY, np.full(_WAY.shape, best[1])
    scale[-1], zero[-1] = best
    error = _errors(moments, integers, scale, zero)
    noise = np.clip(FEW / np.sqrt(max(moments.total, 1)), TOLERANCE, MOST_TOLERANCE)
    good = error <= (1 + float(noise)) * error[-1]  # noise: share of the error, in a sample
    if moments.one_sided:
        good &= _WAY >= _ONE_SIDED_WAY
    i = int(np.argmax(good))  # the last one is good
    return float(scale[i]), int(zero[i])


def _between(
    integers: QuantRange, first: tuple[float, int], best: tuple[float, int]
) -> tuple[Reals, I64Array]:
    """Qparams whose min and max move evenly from those of `first` to those of `best`."""
    (low, high), (best_low, best_high) = (
        ((integers.quant_min - zero) * scale, (integers.quant_max - zero) * scale)
        for scale, zero in (first, best)
    )
    lows, highs = low + (best_low - low) * _WAY, high + (best_high - high) * _WAY
    scale = (highs - lows) / integers.span
    zero = integers.quant_min - np.rint(lows / scale).astype(np.int64)
    return scale, np.clip(zero, integers.quant_min, integers.quant_max)


def _fixed_zero(moments: Moments, integers: QuantRange) -> bool:
    """Whether only the scale is free: in symmetric schemes, and for values of one sign."""
    return integers.qscheme.symmetric or moments.one_sided


def _first_qparams(
    moments: Moments, integers: QuantRange, widest: float, zero_point: int
) -> tuple[Reals, I64Array]:
    """Qparams of a share of the range: of min and of max where the zero point is free."""
    if _fixed_zero(moments, integers):
        scale = widest * _COARSE_ONE_SIDED
        return scale, np.full(scale.shape, zero_point, np.int64)
    low, high = (
        (zero_point - integers.quant_min) * widest,
        (integers.quant_max - zero_point) * widest,
    )
    lows, highs = (a.ravel() for a in np.meshgrid(low * _COARSE, high * _COARSE))
    scale = (lows + highs) / integers.span
    zero = integers.quant_min + np.rint(lows / scale).astype(np.int64)
    # the whole range itself comes first, with its exact scale
    return scale, np.clip(zero, integers.quant_min, integers.quant_max)


def _errors(moments: Moments, integers: QuantRange, scale: Reals, zero: I64Array) -> Reals:
    return moments.squared_error(scale, integers.quant_min - zero, integers.quant_max - zero)


def _best_apart(scale: Reals, zero: I64Array, error: Reals, keep: int) -> I64Array:
    """Indices of the best qparams, no two of them nearly the same."""
    chosen: list[int] = []
    for i in np.argsort(error, kind="stable")[: 16 * keep]:
        near = [j for j in chosen if zero[i] == zero[j] and abs(scale[i] / scale[j] - 1) < 0.02]
        if not near:
            chosen.append(int(i))
        if len(chosen) == keep:
            break
    return np.asarray(chosen, np.int64)


_BINS = 2048  # PyTorch's default
_SHARE = 1e-5  # of the values, left out at a time
_AT_ONCE = 32  # ranges whose errors are computed together; more than are mostly needed


def documented_range(
    histogram: ZeroAnchoredHistogram, moments: Moments, cells: int
) -> tuple[np.float32, np.float32]:
    """(low, high) as PyTorch's HistogramObserver finds it, but for what its upsampling blurs.

    PyTorch's search starts at the whole range and leaves out 1e-5 of the values at a time, on the
    side where that moves the bound over more bins; it stops when the squared error rises for the
    first time. Its zero point is no integer: as many equal cells as there are integers divide the
    range.
    """
    low, high = float(histogram.minimum), float(histogram.maximum)
    width = (high - low) / _BINS
    edges: Reals = (low + width * np.arange(_BINS + 1.0)) / histogram.width
    cumulative = moments.below(edges)[0]
    cumulative[0], cumulative[-1] = 0.0, moments.total
    start, end = _stop(cumulative, cells)
    return np.float32(low + width * start), np.float32(low + width * end)


def _stop(cumulative: Reals, cells: int) -> tuple[int, int]:
    """Edges of the last range before the error rises."""
    moment = np.concatenate([[0.0], np.cumsum(np.diff(cumulative) * (np.arange(_BINS) + 0.5))])
    best, least = (0, _BINS), np.inf
    narrowing = _narrowing(cumulative[1:].tolist())
    while ranges := list(islice(narrowing, _AT_ONCE)):
        errors = _cell_errors(cumulative, moment, np.asarray(ranges, np.int64), cells)
        for candidate, error in zip(ranges, errors.tolist(), strict=True):
            if error > least:
                return best
            best, least = candidate, error
    return best


def _narrowing(cumulative: list[float]) -> Iterator[tuple[int, int]]:
    """The ranges (first edge, last edge) in the order in which the search comes to them."""
    share = _SHARE * cumulative[-1]
    start, end = 0, len(cumulative) - 1  # bins
    below, above = 0, 0  # steps taken at each end
    while below + above < 1 / _SHARE:
        left = bisect_left(cumulative, (below + 1) * share)
        right = bisect_right(cumulative, cumulative[-1] - (above + 1) * share) - 1
        left, right = min(max(left, start), end), max(min(right, end), start)
        if left - start > end - right:
            start, below = left, below + 1
        elif right < end:
            end, above = right, above + 1
        else:  # neither end moves: on to the step at which the upper one does
            above = max(above + 1, int((cumulative[-1] - cumulative[end]) / share))
            continue
        yield start, end + 1


def _cell_errors(mass: Reals, moment: Reals, ranges: I64Array, cells: int) -> Reals:
    """Squared error of each range less a constant; unit of length is a bin of this search.

        sum_c int (x - v_c)^2 = const - 2 sum_c v_c M1_c + sum_c v_c^2 M0_c

    with v_c the middle of cell c; values outside of the range belong to the cell next to them.
    """
    size = (ranges[:, 1:] - ranges[:, :1]) / cells
    cell = np.arange(cells)
    t = ranges[:, :1] + cell[1:] * size
    i = t.astype(np.intp)
    part = t - i
    spread = (mass[i + 1] - mass[i]) * part
    border = (len(t), 1)
    m0 = np.diff(np.hstack([np.zeros(border), mass[i] + spread, np.full(border, mass[-1])]))
    m1 = np.diff(
        np.hstack(
            [np.zeros(border), moment[i] + spread * (i + 0.5 * part), np.full(border, moment[-1])]
        )
    )
    middle = ranges[:, :1] + (cell + 0.5) * size
    return np.asarray((middle * (middle * m0 - 2 * m1)).sum(axis=1))


# --- Moments of a histogram: they give the squared error of any scale and zero point


I64Array = npt.NDArray[np.int64]


class Moments:
    """Cumulative mass and first moment of a histogram that is not empty.

    Attributes:
        first: edge below which there is nothing; edge i is at first + i.
        edges: int64 (n,), counts at the edges.
        inside: int64 (n,), counts between edge i and edge i + 1.
        one_sided: whether no two values differ in sign.
        square: sum of their squares.
    """

    def __init__(self, histogram: ZeroAnchoredHistogram) -> None:
        start, counts = histogram.dense()
        # begin at an edge, with an empty bin: what is below that edge is then 0 without a special
        # case
        lead = 2 + start % 2
        padded = np.zeros(lead + counts.size + counts.size % 2 + 2, np.int64)
        padded = padded[: padded.size // 2 * 2]
        padded[lead : lead + counts.size] = counts
        self.first = (start - lead) // 2
        self.edges, self.inside = padded[0::2], padded[1::2]
        self.one_sided = bool(histogram.minimum >= 0 or histogram.maximum <= 0)
        k = np.arange(self.edges.size, dtype=np.float64) + self.first
        # mass and moment of what is below edge i, and of that with edge i itself
        step = self.edges + self.inside
        moment = self.edges * k + self.inside * (k + 0.5)
        self._mass = np.cumsum(step) - self.inside + 0.0
        self._moment = np.cumsum(moment) - self.inside * (k + 0.5)
        self._inside = self.inside.astype(np.float64)
        self.total = int(step.sum())
        self.mean = float(moment.sum())
        self.square = float((self.edges * k**2 + self.inside * (k * k + k + 1 / 3)).sum())

    def below(self, t: Reals) -> tuple[Reals, Reals]:
        """(mass, moment) of the values below t, an edge at t included; shapes as t's."""
        u = np.clip(t - self.first, 0.0, self.edges.size - 1.0)
        i = u.astype(np.intp)
        part = u - i
        spread = self._inside[i] * part
        mass = self._mass[i] + spread
        moment = self._moment[i] + spread * (self.first + i + 0.5 * part)
        return mass, moment

    def squared_error(self, scale: Reals, low: I64Array, high: I64Array) -> Reals:
        """Sum of (x - scale * clip(rint(x / scale), low, high))^2 over all values, per candidate.

            sum_c int (x - c s)^2 = S2 - 2 s sum_c c M1_c + s^2 sum_c c^2 M0_c

        Both sums telescope over the boundaries (c + 1/2) s between the integers c and c + 1.

        Args:
            scale: float64 (candidates,), in widths of a bin.
            low: int64 (candidates,), smallest integer less zero_point; equal high - low.
            high: int64 (candidates,), largest integer less zero_point.
        """
        span = int(high[0] - low[0])
        integer = low[:, None] + np.arange(span, dtype=np.int64)
        mass, moment = self.below((integer + 0.5) * scale[:, None])
        linear = high * self.mean - moment.sum(axis=1)
        squares = high.astype(np.float64) ** 2 * self.total - ((2.0 * integer + 1) * mass).sum(1)
        error = self.square - 2 * scale * linear + scale**2 * squares
        return np.asarray(np.maximum(error, 0.0))

    def quantile(self, share: float) -> float:
        """Where the cumulative mass is that share of the total, in widths of a bin."""
        target = share * self.total
        i = int(np.searchsorted(self._mass, target))  # first edge at or below which there is enough
        if i == 0:
            return float(self.first)
        gap = target - self._mass[i - 1]
        spread = self.inside[i - 1]
        return (
            float(self.first + i - 1 + min(gap / spread, 1.0)) if spread else float(self.first + i)
        )

    def occupied(self) -> tuple[Counts, Counts]:
        """Edges that hold values, and bins that hold values inside, by (lower) edge's number."""
        return (np.flatnonzero(self.edges) + self.first, np.flatnonzero(self.inside) + self.first)
