from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxq.core import knapsack as module
from onnxq.core.knapsack import Knapsack, Option


def drawn(seed: int, items: int, options: int = 3) -> list[list[Option]]:
    random = np.random.default_rng(seed)
    costs = random.uniform(-0.5, 1.0, (items, options))
    noises = 10 ** random.uniform(-6, -2, (items, options))
    return [
        [Option(float(c), float(n)) for c, n in zip(*each, strict=True)]
        for each in zip(costs, noises, strict=True)
    ]


def sums(items: list[list[Option]], taken: tuple[int, ...] | list[int]) -> tuple[float, float]:
    picked = [options[i] for options, i in zip(items, taken, strict=True)]
    return sum(each.cost for each in picked), sum(each.noise for each in picked)


@pytest.mark.parametrize("seed", range(5))
def test_few_things_get_the_best_of_all_ways(seed: int) -> None:
    items = drawn(seed, 6)
    every = [sums(items, way) for way in itertools.product(range(3), repeat=6)]
    bound = float(np.median([cost for cost, _ in every]))
    cost, noise = sums(items, Knapsack(items).least_noise(bound))
    assert cost <= bound
    assert noise == pytest.approx(min(n for c, n in every if c <= bound))
    cost, noise = sums(items, Knapsack(items).least_cost(1e-3))
    assert noise <= 1e-3
    assert cost == pytest.approx(min(c for c, n in every if n <= 1e-3))


def test_a_bound_that_nothing_keeps_gives_what_is_nearest_to_it() -> None:
    items = drawn(0, 4)
    costs = np.array([[option.cost for option in options] for options in items])
    assert Knapsack(items).least_noise(-10.0) == costs.argmin(1).tolist()
    noises = np.array([[option.noise for option in options] for options in items])
    assert Knapsack(items).least_cost(0.0) == noises.argmin(1).tolist()


def test_a_front_that_is_thinned_stays_near_the_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    items = drawn(1, 12)
    few, every = Knapsack(items), None
    monkeypatch.setattr(module, "MOST_POINTS", 10**9)
    every = Knapsack(items)
    for bound in (0.0, 2.0, 4.0):
        noise, best = (sums(items, each.least_noise(bound))[1] for each in (few, every))
        assert noise <= 1.1 * best


def test_no_things_take_nothing() -> None:
    assert Knapsack([]).least_noise(0.0) == []
