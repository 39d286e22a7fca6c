"""Least sum of costs of two-valued choices, some of which cost when they differ: a minimum cut.

    sum of cost(x)              each x is True or False
    + sum of cost(x and not y)  for pairs

An infinite cost forbids. Dinic's algorithm: paths of least length are filled until there is none.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

ALWAYS, NEVER = ("source", 0), ("sink", 0)
"""Choices that are made: True, and False."""


@dataclass(frozen=True, eq=False)
class BinaryChoices:
    """Choices between True and False, and what they cost.

    Attributes:
        capacities: x -> y -> cost where x is True and y False.
    """

    capacities: dict[Hashable, dict[Hashable, float]] = field(default_factory=dict)

    def costs(self, x: Hashable, if_true: float, if_false: float) -> None:
        """Adds what a choice costs on its own, at least 0."""
        self.differing(x, NEVER, if_true)
        self.differing(ALWAYS, x, if_false)

    def differing(self, x: Hashable, y: Hashable, cost: float) -> None:
        """Adds what it costs where x is True and y is False, at least 0."""
        forth = self.capacities.setdefault(x, {})
        forth[y] = forth.get(y, 0.0) + cost
        self.capacities.setdefault(y, {}).setdefault(x, 0.0)

    def true_ones(self) -> set[Hashable]:
        """The choices that are True where the sum is least; as few as there can be."""
        left = {x: dict(ys) for x, ys in self.capacities.items()}
        for end in (ALWAYS, NEVER):
            left.setdefault(end, {})
        while True:
            depths = _depths(left, ALWAYS)
            if NEVER not in depths:
                return set(depths) - {ALWAYS}
            _fill(left, depths)


def _depths(left: dict[Hashable, dict[Hashable, float]], source: Hashable) -> dict[Hashable, int]:
    """Length of the shortest path to each node that something can still flow to."""
    depths = {source: 0}
    waiting = deque([source])
    while waiting:
        x = waiting.popleft()
        for y, capacity in left[x].items():
            if capacity > 0 and y not in depths:
                depths[y] = depths[x] + 1
                waiting.append(y)
    return depths


def _fill(
    left: dict[Hashable, dict[Hashable, float]],
    depths: dict[Hashable, int],
) -> None:
    """Fills shortest paths from ALWAYS to NEVER until there is none of that length."""
    ahead = {x: list(ys) for x, ys in left.items()}
    path: list[Hashable] = [ALWAYS]
    while path:
        x = path[-1]
        if x == NEVER:
            steps = list(itertools.pairwise(path))
            least = min(left[a][b] for a, b in steps)
            assert math.isfinite(least), "a choice can be neither"
            for a, b in steps:
                left[a][b] -= least
                left[b][a] += least
            full = next(i for i, (a, b) in enumerate(steps) if left[a][b] <= 0)
            del path[full + 1 :]
        elif not ahead[x]:
            path.pop()
            if path:
                ahead[path[-1]].pop()
        elif left[x][ahead[x][-1]] > 0 and depths.get(ahead[x][-1]) == depths[x] + 1:
            path.append(ahead[x][-1])
        else:
            ahead[x].pop()
