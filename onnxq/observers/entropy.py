"""EntropyObserver: the range whose quantized distribution tells most of the original one.

The threshold of least Kullback-Leibler divergence, on a histogram of absolute values.
"""

from __future__ import annotations

import numpy as np

from onnxq.core.arrays import Reals
from onnxq.observers._bins import ZeroAnchoredHistogram
from onnxq.observers.histogram import HistogramObserver
from onnxq.qparams import QParams

_CANDIDATES = 128


class EntropyObserver(HistogramObserver):
    """Scale and zero_point for the range [-T, T], cut to the values', of least KL divergence.

        minimise over T   sum_i P_i log(P_i / Q_i)

    P is the distribution of |x| below T, with all that is above T in its last bin; Q is P's part
    below T averaged over as many groups of bins as there are integers (Migacz, 8-bit inference with
    TensorRT, 2017). Exact zeros are left out, as 0 is always a level. Arguments and state are
    HistogramObserver's.
    """

    def _qparams(self) -> QParams:
        folded = self.histogram.absolute()
        if not folded.maximum > 0:
            return self.range.qparams(self.histogram.minimum, self.histogram.maximum)
        one_sided = self.histogram.minimum >= 0 or self.histogram.maximum <= 0
        whole = one_sided and not self.qscheme.symmetric
        levels = self.range.span + 1 if whole else (self.range.span + 1) // 2
        threshold = least_divergent_threshold(folded, levels)
        low = max(self.histogram.minimum, np.float32(-threshold))
        high = min(self.histogram.maximum, np.float32(threshold))
        return self.range.qparams(low, high)


def least_divergent_threshold(folded: ZeroAnchoredHistogram, levels: int) -> float:
    """The T of least divergence, among up to 128 between `levels` bins and all occupied ones."""
    first, counts = folded.dense()
    places = np.zeros(first + counts.size + 2, np.float64)
    places[first : first + counts.size] = counts
    places[0] = 0.0  # exact zeros
    # an edge belongs to the bin above it
    mass = places[0 : places.size // 2 * 2 : 2] + places[1::2]
    bins = int(np.flatnonzero(mass)[-1]) + 1
    if bins <= levels:
        return float(folded.maximum)
    widths = np.unique(np.linspace(levels, bins, _CANDIDATES).astype(np.int64))
    divergence = [_divergence(mass[:bins], int(end), levels) for end in widths]
    best = int(widths[int(np.argmin(divergence))])
    return min(best * folded.width, float(folded.maximum))


def _divergence(mass: Reals, end: int, levels: int) -> float:
    """KL(P || Q) for the threshold at bin `end`; Q spreads a group over its occupied bins."""
    inside = mass[:end]
    if not inside.any():
        return np.inf
    p = inside.copy()
    p[-1] += mass[end:].sum()
    starts = np.arange(levels) * end // levels
    occupied = inside > 0
    group = np.add.reduceat(inside, starts)
    members = np.add.reduceat(occupied.astype(np.int64), starts)
    sizes = np.diff(np.append(starts, end))
    q = np.repeat(group / np.maximum(members, 1), sizes) * occupied
    q /= q.sum()
    p /= p.sum()
    held = p > 0
    # the mass from above may land in an empty bin; a tiny share keeps the divergence finite, and
    # large
    return float((p[held] * np.log(p[held] / np.maximum(q[held], 1e-12))).sum())
