from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.objective_function import ObjectiveFunction
from onnxq.tuning.search.bisection import back, repaired
from onnxq.tuning.search.candidate import MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.local_search import LocalSearch, SearchEnd
from tests.tuning.made_up import FLOAT, INTEGER, Classifier, Layer, Network, searched

if TYPE_CHECKING:
    from onnxq.tuning.search.bisection import Measure
    from onnxq.tuning.search.candidate import Candidate

SEEDS = range(24)
FAST_LAYERS = 16


def begun(network: Network) -> MeasuredCandidate:
    """All layers in integers."""
    return MeasuredCandidate(network.start, network.score([INTEGER] * len(network.layers)))


def measure_of(network: Network, seen: list[Candidate]) -> Measure:
    def measure(candidate: Candidate) -> MeasuredCandidate:
        seen.append(candidate)
        return MeasuredCandidate(
            candidate, network.score([candidate.precision(group) for group in network.groups])
        )

    return measure


def test_bound_is_kept_with_the_fewest_changes_in_logarithmic_runs() -> None:
    layers = [Layer(1e-3, 0.05, 0.03)] * 5 + [Layer(1e-9, 0.05, 0.03)] * 11
    network = Network(tuple(layers))
    seen: list[Candidate] = []
    objective = ObjectiveFunction(Goal(min_sqnr_db=50), math.inf)
    found = repaired(begun(network), network.proposals(objective), measure_of(network, seen))
    assert found is not None
    precisions = [found.candidate.precision(group) for group in network.groups]
    assert precisions == [FLOAT] * 5 + [INTEGER] * 11
    assert len(seen) <= 4


def test_groups_that_are_blamed_go_back_first_where_nothing_is_known_of_the_others() -> None:
    """A verdict blames two layers: no sensitivity was measured."""
    at_fault = (3, 9)
    network = Network(
        tuple(Layer(1e-2 if i in at_fault else 1e-9, 0.05, 0.03) for i in range(FAST_LAYERS))
    )
    blamed = {network.groups[i].anchor.name: 1.0 for i in at_fault}
    objective = ObjectiveFunction(Goal(min_sqnr_db=50), math.inf)
    proposals = network.proposals(objective, blamed)
    found = repaired(begun(network), proposals, measure_of(network, []))
    assert found is not None
    assert found.candidate.precisions.keys() == blamed.keys()


def test_bound_that_nothing_keeps_gives_none() -> None:
    network = Network((Layer(1e-3, 0.5, 0.3),) * 4)
    objective = ObjectiveFunction(Goal(min_sqnr_db=300), math.inf)
    proposals = network.proposals(objective)
    assert repaired(begun(network), proposals, measure_of(network, [])) is None


@pytest.mark.parametrize("objective", [Objective.SPEED, Objective.SIZE])
def test_all_layers_but_the_one_at_fault_go_back(objective: Objective) -> None:
    at_fault = 11
    errors = np.zeros((FAST_LAYERS, 100))
    errors[at_fault, :3] = -1.0
    layers = tuple(Layer(1e-5, 0.05, 0.03) for _ in range(FAST_LAYERS))
    network = Classifier(layers, margins=np.full(100, 0.5), errors=errors)
    proposals = network.proposals(network.objective(Goal(max_drop=0.0, objective=objective)))
    candidate = network.start.with_changes(
        [PrecisionChange(group, FLOAT) for group in network.groups]
    )
    start = MeasuredCandidate(candidate, network.score([FLOAT] * FAST_LAYERS))
    seen: list[Candidate] = []
    found = back(start, proposals.back(start, ()), measure_of(network, seen), proposals)
    left = [u for u in network.groups if found.candidate.precision(u) is FLOAT]
    assert left == [network.groups[at_fault]]
    assert len(seen) <= 1 + 2 * math.log2(FAST_LAYERS)


def test_nothing_goes_back_where_no_time_is_known() -> None:
    network = Network((Layer(1e-5, 0.5, 0.3),))
    proposals = network.proposals(network.objective(Goal(max_drop=0.0)))
    point = begun(network)
    blind = replace(proposals, time_of=lambda _: None)
    assert blind.back(point, ()) == ()
    assert back(point, (), measure_of(network, []), blind) is point


def test_nothing_is_predicted_where_no_run_is_left() -> None:
    network = Network((Layer(1e-5, 0.05, 0.03),) * FAST_LAYERS)
    candidate = network.start.with_changes(
        [PrecisionChange(group, FLOAT) for group in network.groups]
    )
    point = MeasuredCandidate(candidate, network.score([FLOAT] * FAST_LAYERS))
    seen: list[Candidate] = []

    def refused(candidate: Candidate) -> MeasuredCandidate | None:
        seen.append(candidate)
        return None

    proposals = network.proposals(network.objective(Goal(max_drop=0.0)))
    way = proposals.back(point, ())
    asked: list[Candidate] = []

    def time_of(candidate: Candidate) -> float | None:
        asked.append(candidate)
        return proposals.time_of(candidate)

    counting = replace(proposals, time_of=time_of)
    assert back(point, way, refused, counting, lambda: not seen) is point
    assert len(seen) == 1
    assert len(asked) == 2  # with the changes and without


def test_halves_leave_out_what_gives_no_model() -> None:
    """A layer that cannot be float lies on every way to float but a short one."""
    network = Network((Layer(1e-3, 0.1, 0.05), *[Layer(1e-9, 0.1, 0.05)] * 7))
    measure, seen = measure_of(network, []), set[int]()

    def measured(candidate: Candidate) -> MeasuredCandidate | None:
        with_changes = sum(candidate.precision(group) is FLOAT for group in network.groups)
        seen.add(with_changes)
        return measure(candidate) if with_changes < 3 else None

    objective = ObjectiveFunction(Goal(min_sqnr_db=50), math.inf)
    found = repaired(begun(network), network.proposals(objective), measured)
    assert found is not None
    assert not objective.violation_db(found.score)
    assert seen == {4, 2, 1}


def test_accuracy_is_found_by_halves_where_time_is_bounded_too() -> None:
    """Float is slower than the bound on time, so that nothing near it keeps both."""
    layers = [Layer(1e-3, 0.05, 0.01)] * 2 + [Layer(1e-9, 0.05, 0.01)] * 14
    network = Network(tuple(layers))
    objective = ObjectiveFunction(Goal(min_sqnr_db=50, max_time=0.3), math.inf)
    found = repaired(begun(network), network.proposals(objective), measure_of(network, []))
    assert found is not None
    assert not objective.violation_db(found.score)


@pytest.mark.parametrize("runs", [4, 5, 6])
def test_search_that_is_cut_while_it_halves_says_so(runs: int) -> None:
    network, wrong = Classifier.drawn(8)
    proposals = network.proposals(network.objective(Goal(max_drop=0.001, max_time=0.6)), wrong)
    found = searched(LocalSearch(proposals, network.measured, (), runs), network.start)
    assert len(found.points) == runs
    assert found.why is SearchEnd.NO_RUN


def test_search_for_a_metric_reaches_it_near_the_best_of_all_forms() -> None:
    goal = Goal(max_drop=0.001)
    ratios = []
    for seed in SEEDS:
        network, wrong = Classifier.drawn(seed)
        objective = network.objective(goal)
        if not objective.violation_db(begun(network).score):
            continue
        best = min(network.every(), key=objective.order)
        found = network.search(goal, wrong)
        assert objective.violation_db(found.best.score) == 0
        assert len(found.points) <= goal.max_runs
        ratios.append(objective.value(found.best.score) / objective.value(best))
    assert len(ratios) > 12
    assert statistics.median(ratios) <= 1.01
    assert statistics.mean(ratios) <= 1.02
    assert max(ratios) <= 1.15
