"""Moments of a histogram give the squared error of any scale and zero point.

Unit of length is the width of a bin. Values at an edge (even places) are points; those inside a bin
are taken as spread evenly over it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Reals
from onnxq.observers._bins import Counts, ZeroAnchoredHistogram

I64Array = npt.NDArray[np.int64]


class Moments:
    """Cumulative mass and first moment of a histogram that is not empty.

    Attributes:
        first: edge below which there is nothing; edge i is at first + i.
        edges: int64 (n,), counts at the edges.
        inside: int64 (n,), counts between edge i and edge i + 1.
        one_sided: whether no two values differ in sign.
        total: number of values.
        mean: sum of all values.
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
