from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import QConfigError
from onnxq.tuning.evaluation.evaluations import Refusal
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.objective_function import ObjectiveFunction, noise_of
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import AlgorithmChange, PrecisionChange, precision_in
from onnxq.tuning.search.local_search import LocalSearch, SearchEnd
from onnxq.tuning.search.noise_estimates import NoiseEstimates
from onnxq.tuning.search.pareto_candidates import front_of
from onnxq.tuning.search.proposals import Proposals
from tests.tuning.made_up import (
    FLOAT,
    INTEGER,
    Classifier,
    Layer,
    Network,
    drawn,
    drawn_chain,
    searched,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.qconfig import QConfigMapping

SEEDS = range(12)


@pytest.mark.parametrize(
    ("goal", "factor"),
    [
        (Goal(min_sqnr_db=30), 1.02),
        (Goal(min_sqnr_db=40), 1.02),
        # a weight is large or small: the last layer that fits decides
        (Goal(min_sqnr_db=30, objective=Objective.SIZE), 1.1),
    ],
)
def test_search_is_near_the_best_of_all_forms_in_few_runs(goal: Goal, factor: float) -> None:
    ratios, runs = [], []
    for seed in SEEDS:
        network, wrong = drawn(seed)
        objective = ObjectiveFunction(goal, math.inf)
        best = min(network.every(), key=objective.order)
        found = network.search(goal, wrong)
        assert objective.violation_db(found.best.score) == 0
        ratios.append(objective.value(found.best.score) / objective.value(best))
        runs.append(len(found.points))
    assert statistics.median(ratios) <= factor
    assert max(ratios) < 1.5
    assert max(runs) <= 20


@pytest.mark.parametrize("share", [0.5, pytest.param(0.2, marks=pytest.mark.nightly)])
def test_most_accurate_within_a_time_is_near_the_best_of_all_forms(share: float) -> None:
    behind: list[float] = []
    behind_wrong: list[float] = []
    for seed in SEEDS:
        network, wrong = drawn(seed)
        fastest = sum(min(x.float_time, x.integer_time) for x in network.layers)
        goal = Goal(max_time=fastest + share * (1 - fastest), objective=Objective.ACCURACY)
        objective = ObjectiveFunction(goal, math.inf)
        best = noise_of(min(network.every(), key=objective.order))
        for noise, db in ((None, behind), (wrong, behind_wrong)):
            found = network.search(goal, noise).best.score
            assert objective.violation_db(found) == 0
            db.append(10 * math.log10(noise_of(found) / best))
    # candidates that are expected to be within LEAST_DB of each other are not told apart
    assert max(behind) <= 0.1
    # noise of a group below LEAST_GAIN of all is never asked for: wrong by 5 dB, it decides last
    assert max(behind_wrong) <= 1.0


def test_goal_that_is_kept_at_the_start_takes_one_run_where_nothing_is_faster() -> None:
    network = Network((Layer(1e-5, 0.5, 0.2), Layer(1e-5, 0.5, 0.3)))
    found = network.search(Goal(min_sqnr_db=30))
    assert len(found.points) == 1
    assert found.why is SearchEnd.NO_CHANGE


def test_only_the_layer_with_the_noise_goes_to_float() -> None:
    layers = [Layer(1e-6, 0.1, 0.05)] * 9 + [Layer(1e-1, 0.1, 0.05)]
    network = Network(tuple(layers))
    found = network.search(Goal(min_sqnr_db=40))
    assert dict(found.best.candidate.precisions) == {"/layer9": FLOAT}


def test_layers_that_are_slower_in_integers_go_to_float_by_layer_type() -> None:
    network = Network((Layer(1e-6, 0.5, 0.7), Layer(1e-6, 0.5, 0.7)))
    found = network.search(Goal(max_time=1.0))
    assert set(found.best.candidate.precisions.values()) == {FLOAT}


def test_goal_out_of_reach_gives_the_point_that_lacks_least() -> None:
    network = Network((Layer(1e-2, 0.5, 0.2), Layer(1e-3, 0.5, 0.2)))
    goal = Goal(min_sqnr_db=40, max_time=0.3)
    found = network.search(goal)
    objective = ObjectiveFunction(goal, math.inf)
    assert objective.violation_db(found.best.score) > 0
    assert found.best == min(found.points, key=lambda p: objective.order(p.score))


def test_search_takes_no_more_runs_than_it_may() -> None:
    network, wrong = drawn(3)
    found = network.search(Goal(min_sqnr_db=45, max_runs=3), wrong)
    assert len(found.points) == 3
    assert found.why is SearchEnd.NO_RUN


def test_search_is_the_same_every_time() -> None:
    network, wrong = drawn(4)
    first, second = (network.search(Goal(min_sqnr_db=40), wrong) for _ in range(2))
    assert first.points == second.points


def test_front_of_a_search_has_its_best_point() -> None:
    network, wrong = drawn(5)
    found = network.search(Goal(min_sqnr_db=40), wrong)
    assert found.best.score in [point.score for point in front_of(found.points)]


def _descent(network: Network, goal: Goal, refused: object) -> LocalSearch:
    """A search in which mappings with the first layer in float are refused."""

    def measured(mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        return [
            Refusal("no kernel")
            if precision_in(mapping, network.groups[0]) is refused
            else network.measured([mapping])[0]
            for mapping in mappings
        ]

    noise = {u.anchor.name: x.noise for u, x in zip(network.groups, network.layers, strict=True)}
    proposals = Proposals(
        ObjectiveFunction(goal, math.inf),
        NoiseEstimates(noise),
        lambda p: network.score([p.precision(group) for group in network.groups]).time_ratio,
    )
    return LocalSearch(proposals, measured, (), goal.max_runs)


def test_changes_that_are_refused_are_named_and_others_found() -> None:
    network = Network((Layer(1e-2, 0.5, 0.2), Layer(1e-2, 0.5, 0.2)))
    found = searched(_descent(network, Goal(min_sqnr_db=19.6), FLOAT), network.start)
    assert [why for _, why in found.refused]
    assert dict(found.best.candidate.precisions) == {"/layer1": FLOAT}


def test_a_changes_that_is_refused_is_found_in_its_batch_and_keeps_no_other_one_back() -> None:
    layers = tuple(Layer(1e-3 * (10 - i), 0.1, 0.05) for i in range(8))
    network = Network((Layer(1e-2, 0.2, 0.1), *layers))
    goal = Goal(min_sqnr_db=17, max_runs=20)
    found = searched(_descent(network, goal, FLOAT), network.start)
    assert [changes for changes, _ in found.refused] == [("float: Conv, /layer0",)]
    assert ObjectiveFunction(goal, math.inf).violation_db(found.best.score) == 0
    assert "/layer0" not in found.best.candidate.precisions


def test_changes_that_are_refused_together_are_taken_apart() -> None:
    network = Network(tuple(Layer(1e-2, 0.25, 0.1) for _ in range(4)))
    goal = Goal(min_sqnr_db=16.0, max_runs=12)

    def measured(mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        first, second = network.groups[:2]
        return [
            Refusal("not side by side")
            if precision_in(mapping, first) is precision_in(mapping, second) is FLOAT
            else network.measured([mapping])[0]
            for mapping in mappings
        ]

    local_search = replace(_descent(network, goal, None), evaluate=measured)
    found = searched(local_search, network.start)
    assert ObjectiveFunction(goal, math.inf).violation_db(found.best.score) == 0
    assert set(found.best.candidate.precisions) == {"/layer0", "/layer2"}


def test_the_better_of_two_beginnings_is_gone_on_from() -> None:
    network = Network(tuple(Layer(1e-2, 0.5, 0.2) for _ in range(4)))
    goal = Goal(min_sqnr_db=14.0)
    other = replace(
        network.start.with_changes([PrecisionChange(network.groups[3], FLOAT)]), name="another"
    )
    found = searched(_descent(network, goal, None), network.start, other)
    assert [point.candidate.name for point in found.points[:2]] == ["", "another"]
    assert found.best.candidate.words[0] == "another"
    assert (
        searched(_descent(network, goal, None), other, network.start).best.candidate.name
        == "another"
    )


@pytest.mark.parametrize(("seed", "at_fault"), [(2, 6), (6, 2), (7, 3)])
def test_a_changes_that_is_refused_alone_is_never_tried_again(seed: int, at_fault: int) -> None:
    """Neither where a candidate is looked for afresh, nor on the way to float by halves."""
    network, wrong = Classifier.drawn(seed)
    asked: list[int] = []

    def measured(mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        found: list[Score | Refusal] = []
        for mapping in mappings:
            precisions = [precision_in(mapping, group) for group in network.groups]
            is_refused = precisions[at_fault] is FLOAT
            asked.extend([precisions.count(FLOAT)] if is_refused else [])
            found.append(Refusal("does not run") if is_refused else network.score(precisions))
        return found

    proposals = network.proposals(network.objective(Goal(max_drop=0.001)), wrong)
    found = searched(LocalSearch(proposals, measured, (), 40), network.start)
    assert [changes for changes, _ in found.refused] == [(f"float: Conv, /layer{at_fault}",)]
    assert asked.index(1) == len(asked) - 1


def test_start_that_is_refused_is_an_error() -> None:
    network = Network((Layer(1e-2, 0.5, 0.2),))
    with pytest.raises(QConfigError, match="no kernel"):
        searched(_descent(network, Goal(), INTEGER), network.start)


def test_time_that_is_up_ends_a_search() -> None:
    network, _ = drawn(6)
    local_search = _descent(network, Goal(min_sqnr_db=60), None)
    late = iter([False, False, *[True] * 100])
    found = searched(replace(local_search, is_late=lambda: next(late)), network.start)
    assert found.why is SearchEnd.LATE


def test_search_without_any_time_gives_the_model_that_it_begins_with() -> None:
    network, _ = drawn(6)
    local_search = _descent(network, Goal(min_sqnr_db=60), None)
    found = searched(replace(local_search, is_late=lambda: True), network.start)
    assert found.best.candidate == network.start
    assert found.why is SearchEnd.LATE


def test_noise_that_neighbours_share_does_not_keep_a_search_from_its_bound() -> None:
    """A layer alone in float takes less noise away than it had alone in integers."""
    runs, until = [], []
    for seed in SEEDS:
        network = drawn_chain(seed)
        begun = network.score([network.start.precision(group) for group in network.groups]).worst_db
        goal = Goal(min_sqnr_db=begun + 2)
        points = network.search(goal, network.alone).points
        violation_db = [
            ObjectiveFunction(goal, math.inf).violation_db(point.score) for point in points
        ]
        until.append(
            next((i for i, lack in enumerate(violation_db, 1) if not lack), len(violation_db))
        )
        assert min(violation_db) == 0
        runs.append(len(points))
    assert statistics.mean(until) <= 5
    assert max(runs) <= 20


def test_algorithms_that_take_no_time_are_tried_before_layers_go_to_float() -> None:
    network = Network(tuple(Layer(1e-2, 0.2, 0.1) for _ in range(4)))

    def measured(mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        found = []
        for mapping in mappings:
            (score,) = network.measured([mapping])
            assert isinstance(score, Score)
            db = score.worst_db + (30.0 if "smooth" in mapping.algorithms else 0.0)
            found.append(replace(score, metric=db, sqnr_db={"y": db}))
        return [*found]

    goal = Goal(min_sqnr_db=35, objective=Objective.SIZE)
    noise = {group.anchor.name: 1e-2 for group in network.groups}
    proposals = Proposals(
        ObjectiveFunction(goal, math.inf), NoiseEstimates(noise), lambda _position: 0.4
    )
    smooth = AlgorithmChange("smooth")
    free = (smooth, AlgorithmChange("bias"))
    found = searched(LocalSearch(proposals, measured, (), 40), network.start, free=free)
    assert found.best.candidate.whole == (smooth,)
    assert found.best.score.size_bytes == 4000
    assert len(found.points) == 3


def test_near_the_goal_changes_of_the_whole_come_before_layers_go_to_float() -> None:
    """A bias costs no time, and few runs may be left, so it is tried before a group in float."""
    network = Network((Layer(1e-9, 0.1, 0.2), Layer(1e-3, 0.9, 0.3)))

    def measured(mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        found: list[Score | Refusal] = []
        for mapping in mappings:
            score = network.score([precision_in(mapping, group) for group in network.groups])
            db = score.worst_db + (3.0 if "bias" in mapping.algorithms else 0.0)
            found.append(replace(score, metric=db, sqnr_db={"y": db}))
        return found

    objective = ObjectiveFunction(Goal(min_sqnr_db=31), math.inf)  # begun with 30
    whole = (AlgorithmChange("bias"),)
    found = searched(LocalSearch(network.proposals(objective), measured, whole, 2), network.start)
    assert found.best.candidate.whole == whole
    assert objective.violation_db(found.best.score) == 0


def test_a_batch_that_gives_far_more_than_is_wanted_is_cut_by_bisection() -> None:
    """Estimates that promise too little put all in float, and say of no layer that it may go back.

    Half of the layers bring all noise, and their estimates are a thousandth of it.
    """
    loud = [Layer(1e-3, 0.05, 0.03)] * 4
    network = Network((*loud, *[Layer(1e-8, 0.05, 0.03)] * 12))
    noise = {group.anchor.name: 1e-6 for group in network.groups}
    found = network.search(Goal(min_sqnr_db=40), noise)
    assert {
        name for name, precision in found.best.candidate.precisions.items() if precision is FLOAT
    } == {group.anchor.name for group in network.groups[:4]}
