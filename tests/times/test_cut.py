from __future__ import annotations

import itertools
import math
import random

from onnxq.times.changed_time import BinaryChoices


def least(
    alone: dict[int, tuple[float, float]], pairs: dict[tuple[int, int], float]
) -> tuple[float, list[tuple[bool, ...]]]:
    """(least sum, all choices that have it), by trying all."""
    sums = {}
    for choice in itertools.product((False, True), repeat=len(alone)):
        cost = sum(costs[not choice[x]] for x, costs in alone.items())
        cost += sum(c for (x, y), c in pairs.items() if choice[x] and not choice[y])
        sums[choice] = cost
    best = min(sums.values())
    return best, [choice for choice, cost in sums.items() if math.isclose(cost, best)]


def test_the_sum_is_the_least_of_all() -> None:
    random.seed(1)
    for _ in range(200):
        count = random.randint(1, 8)
        alone: dict[int, tuple[float, float]] = {
            x: (random.randint(0, 9), random.randint(0, 9)) for x in range(count)
        }
        pairs: dict[tuple[int, int], float] = {
            (random.randrange(count), random.randrange(count)): random.randint(0, 9)
            for _ in range(count)
        }
        choices = BinaryChoices()
        for x, costs in alone.items():
            choices.costs(x, *costs)
        for (x, y), cost in pairs.items():
            choices.differing(x, y, cost)
        found = choices.true_ones()
        assert tuple(x in found for x in range(count)) in least(alone, pairs)[1]


def test_what_is_forbidden_does_not_happen() -> None:
    choices = BinaryChoices()
    choices.costs("read", 0.0, 5.0)  # wants to be True
    choices.costs("written", 3.0, 0.0)
    choices.differing("read", "written", math.inf)
    assert choices.true_ones() == {"read", "written"}


def test_where_nothing_is_gained_a_choice_is_false() -> None:
    choices = BinaryChoices()
    choices.costs("x", 2.0, 2.0)
    assert choices.true_ones() == set()
