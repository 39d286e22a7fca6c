from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.tuning.scoring.goal import Aim, Goal
from onnxq.tuning.scoring.objective_function import Standing
from onnxq.tuning.search.bisection import back, nearest_kept
from onnxq.tuning.search.candidate import FormMove, Point
from onnxq.tuning.search.local_search import NO_RUN, Descent
from tests.tuning.made_up import FLOAT, INTEGER, Classifier, Layer, Network

if TYPE_CHECKING:
    from onnxq.tuning.search.bisection import Measure
    from onnxq.tuning.search.candidate import Position

SEEDS = range(24)
FAST_LAYERS = 16


def begun(network: Network) -> Point:
    """All layers in integers."""
    return Point(network.start, network.score([INTEGER] * len(network.layers)))


def measure_of(network: Network, seen: list[Position]) -> Measure:
    def measure(position: Position) -> Point:
        seen.append(position)
        return Point(position, network.score([position.form(unit) for unit in network.units]))

    return measure


def test_bound_is_kept_with_the_fewest_moves_in_logarithmic_runs() -> None:
    layers = [Layer(1e-3, 0.05, 0.03)] * 5 + [Layer(1e-9, 0.05, 0.03)] * 11
    network = Network(tuple(layers))
    way = [FormMove(unit, FLOAT) for unit in network.units]
    seen: list[Position] = []
    standing = Standing(Goal(min_sqnr_db=50), math.inf)
    found = nearest_kept(begun(network), tuple(way), measure_of(network, seen), standing)
    assert found is not None
    forms = [found.position.form(unit) for unit in network.units]
    assert forms == [FLOAT] * 5 + [INTEGER] * 11
    assert len(seen) <= 4


def test_bound_that_nothing_keeps_gives_none() -> None:
    network = Network((Layer(1e-3, 0.5, 0.3),) * 4)
    way = tuple(FormMove(unit, FLOAT) for unit in network.units)
    standing = Standing(Goal(min_sqnr_db=300), math.inf)
    assert nearest_kept(begun(network), way, measure_of(network, []), standing) is None


@pytest.mark.parametrize("objective", [Aim.SPEED, Aim.SIZE])
def test_all_layers_but_the_one_at_fault_go_back(objective: Aim) -> None:
    at_fault = 11
    errors = np.zeros((FAST_LAYERS, 100))
    errors[at_fault, :3] = -1.0
    layers = tuple(Layer(1e-5, 0.05, 0.03) for _ in range(FAST_LAYERS))
    network = Classifier(layers, margins=np.full(100, 0.5), errors=errors)
    proposals = network.proposals(network.standing(Goal(max_drop=0.0, objective=objective)))
    position = network.start.moved([FormMove(unit, FLOAT) for unit in network.units])
    start = Point(position, network.score([FLOAT] * FAST_LAYERS))
    seen: list[Position] = []
    found = back(start, proposals.back(start, ()), measure_of(network, seen), proposals)
    left = [u for u in network.units if found.position.form(u) is FLOAT]
    assert left == [network.units[at_fault]]
    assert len(seen) <= 1 + 2 * math.log2(FAST_LAYERS)


def test_nothing_goes_back_where_no_time_is_known() -> None:
    network = Network((Layer(1e-5, 0.5, 0.3),))
    proposals = network.proposals(network.standing(Goal(max_drop=0.0)))
    point = begun(network)
    blind = replace(proposals, time_of=lambda _: None)
    assert blind.back(point, ()) == ()
    assert back(point, (), measure_of(network, []), blind) is point


def test_nothing_is_predicted_where_no_run_is_left() -> None:
    network = Network((Layer(1e-5, 0.05, 0.03),) * FAST_LAYERS)
    position = network.start.moved([FormMove(unit, FLOAT) for unit in network.units])
    point = Point(position, network.score([FLOAT] * FAST_LAYERS))
    seen: list[Position] = []

    def refused(position: Position) -> Point | None:
        seen.append(position)
        return None

    proposals = network.proposals(network.standing(Goal(max_drop=0.0)))
    way = proposals.back(point, ())
    asked: list[Position] = []

    def time_of(position: Position) -> float | None:
        asked.append(position)
        return proposals.time_of(position)

    counting = replace(proposals, time_of=time_of)
    assert back(point, way, refused, counting, lambda: not seen) is point
    assert len(seen) == 1
    assert len(asked) == 2  # with the moves and without


def test_halves_leave_out_what_gives_no_model() -> None:
    """A layer that cannot be float lies on every way to float but a short one."""
    network = Network((Layer(1e-3, 0.1, 0.05), *[Layer(1e-9, 0.1, 0.05)] * 7))
    way = tuple(FormMove(unit, FLOAT) for unit in network.units)
    measure, seen = measure_of(network, []), set[int]()

    def measured(position: Position) -> Point | None:
        moved = sum(position.form(unit) is FLOAT for unit in network.units)
        seen.add(moved)
        return measure(position) if moved < 3 else None

    standing = Standing(Goal(min_sqnr_db=50), math.inf)
    found = nearest_kept(begun(network), way, measured, standing)
    assert found is not None
    assert not standing.lacks(found.score)
    assert seen == {4, 2, 1}


def test_accuracy_is_found_by_halves_where_time_is_bounded_too() -> None:
    """Float is slower than the bound on time, so that nothing near it keeps both."""
    layers = [Layer(1e-3, 0.05, 0.01)] * 2 + [Layer(1e-9, 0.05, 0.01)] * 14
    network = Network(tuple(layers))
    way = tuple(FormMove(unit, FLOAT) for unit in network.units)
    standing = Standing(Goal(min_sqnr_db=50, max_time=0.3), math.inf)
    found = nearest_kept(begun(network), way, measure_of(network, []), standing)
    assert found is not None
    assert not standing.lacks(found.score)


@pytest.mark.parametrize("runs", [4, 5, 6])
def test_search_that_is_cut_while_it_halves_says_so(runs: int) -> None:
    network, wrong = Classifier.drawn(8)
    proposals = network.proposals(network.standing(Goal(max_drop=0.001, max_time=0.6)), wrong)
    found = Descent(proposals, network.measured, (), runs).run(network.start)
    assert len(found.points) == runs
    assert found.why == NO_RUN


def test_search_for_a_metric_reaches_it_near_the_best_of_all_forms() -> None:
    goal = Goal(max_drop=0.001)
    ratios = []
    for seed in SEEDS:
        network, wrong = Classifier.drawn(seed)
        standing = network.standing(goal)
        if not standing.lacks(begun(network).score):
            continue
        best = min(network.every(), key=standing.order)
        found = network.search(goal, wrong)
        assert standing.lacks(found.best.score) == 0
        assert len(found.points) <= goal.max_runs
        ratios.append(standing.worth(found.best.score) / standing.worth(best))
    assert len(ratios) > 12
    assert statistics.median(ratios) <= 1.01
    assert statistics.mean(ratios) <= 1.02
    assert max(ratios) <= 1.15
