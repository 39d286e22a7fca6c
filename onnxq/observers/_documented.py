"""The range that PyTorch's HistogramObserver documents, on onnxq's histogram.

PyTorch's search starts at the whole range and leaves out 1e-5 of the values at a time, on the side
where that moves the bound over more bins; it stops when the squared error rises for the first time.
Its zero point is no integer: as many equal cells as there are integers divide the range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Reals
    from onnxq.observers._bins import ZeroAnchoredHistogram
    from onnxq.observers.error_moments import I64Array, Moments

_BINS = 2048  # PyTorch's default
_SHARE = 1e-5  # of the values, left out at a time
_AT_ONCE = 32  # ranges whose errors are computed together; more than are mostly needed


def documented_range(
    histogram: ZeroAnchoredHistogram, moments: Moments, cells: int
) -> tuple[np.float32, np.float32]:
    """(low, high) of that search; it differs from torch's by what torch's upsampling blurs."""
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
        errors = _errors(cumulative, moment, np.asarray(ranges, np.int64), cells)
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


def _errors(mass: Reals, moment: Reals, ranges: I64Array, cells: int) -> Reals:
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
    m0 = np.diff(
        np.hstack([np.zeros(border), mass[i] + spread, np.full(border, mass[-1])]),
    )
    m1 = np.diff(
        np.hstack(
            [np.zeros(border), moment[i] + spread * (i + 0.5 * part), np.full(border, moment[-1])]
        )
    )
    middle = ranges[:, :1] + (cell + 0.5) * size
    return np.asarray((middle * (middle * m0 - 2 * m1)).sum(axis=1))
