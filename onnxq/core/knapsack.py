"""Multiple-choice knapsack: one option of each item, with least noise for a cost or the reverse.

    least_noise   over options whose costs add up to at most a bound
    least_cost    over options whose noises add up to at most a bound

The Pareto front is found by dynamic programming, item by item: the front of the first k, with each
option of the next one added, without what is dominated. A front of more than MOST_POINTS is thinned
along its length, so that the work is linear in the items; up to there the answer is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Reals

Indices = npt.NDArray[np.intp]

MOST_POINTS = 512
"""Points of a front that are kept: noise and cost are then met to a hundredth of their ranges."""
LEAST_NOISE = 1e-30
"""Noise that stands for none where its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class Option:
    """Choice of an item.

    Attributes:
        cost: of any sign.
        noise: at least 0.
    """

    cost: float
    noise: float


class Knapsack:
    """Pareto front of all ways to take one option of each item."""

    def __init__(self, items: Sequence[Sequence[Option]]) -> None:
        self._cost, self._noise = np.zeros(1), np.zeros(1)
        self._came: list[tuple[Indices, Indices]] = []  # of each item: (point before, option)
        for options in items:
            self._add(options)

    def _add(self, options: Sequence[Option]) -> None:
        costs = np.array([each.cost for each in options])
        noises = np.array([each.noise for each in options])
        cost = np.add.outer(costs, self._cost).ravel()
        noise = np.add.outer(noises, self._noise).ravel()
        taken, before = np.divmod(np.arange(cost.size), self._cost.size)
        kept = _thinned(cost, noise, _undominated(cost, noise))
        self._cost, self._noise = cost[kept], noise[kept]
        self._came.append((before[kept], taken[kept]))

    def least_noise(self, most_cost: float) -> list[int]:
        """Option of each item, so that the noise is least; the cheapest where all cost more."""
        within = np.flatnonzero(self._cost <= most_cost)
        return self._options(int(within[-1]) if within.size else 0)

    def least_cost(self, most_noise: float) -> list[int]:
        """Option of each item of least total cost; the quietest where all have more noise."""
        within = np.flatnonzero(self._noise <= most_noise)
        return self._options(int(within[0]) if within.size else self._noise.size - 1)

    def _options(self, point: int) -> list[int]:
        found = []
        for before, taken in reversed(self._came):
            found.append(int(taken[point]))
            point = int(before[point])
        return found[::-1]


def _undominated(cost: Reals, noise: Reals) -> Indices:
    """Indices of the points of which no other is as cheap and as quiet, by their cost."""
    order = np.lexsort((noise, cost))
    quiet = noise[order]
    least = np.minimum.accumulate(quiet)
    kept: Indices = order[np.concatenate([[True], quiet[1:] < least[:-1]])]
    return kept


def _thinned(cost: Reals, noise: Reals, front: Indices) -> Indices:
    """The front with one point in each stretch of cost and of the noise's logarithm."""
    if front.size <= MOST_POINTS:
        return front
    along = _share(cost[front]) - _share(np.log(np.maximum(noise[front], LEAST_NOISE)))
    stretch = np.floor(along / (along[-1] - along[0]) * (MOST_POINTS - 1))
    kept: Indices = front[np.concatenate([[True], np.diff(stretch) > 0])]
    return kept


def _share(values: Reals) -> Reals:
    """The values over their range."""
    shares: Reals = (values - values.min()) / max(float(np.ptp(values)), LEAST_NOISE)
    return shares
