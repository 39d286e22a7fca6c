"""The threshold of least Kullback-Leibler divergence, on a histogram of absolute values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals
    from onnxq.observers._bins import ZeroAnchoredHistogram


_CANDIDATES = 128


def least_divergent_threshold(folded: ZeroAnchoredHistogram, levels: int) -> float:
    """The T of least divergence, among up to 128 between `levels` bins and all that are occupied.

    Args:
        folded: histogram of absolute values, not all zero.
        levels: number of integers for [0, T].
    """
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
