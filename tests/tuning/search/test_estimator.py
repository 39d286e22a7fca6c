from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.objective_function import ObjectiveFunction
from onnxq.tuning.search.candidate import MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.noise_estimates import NoiseEstimates
from onnxq.tuning.search.proposals import Estimator, share_of_bytes
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

if TYPE_CHECKING:
    from onnxq.tuning.search.candidate import Candidate

NOISY, QUIET = Layer(1e-2, 0.3, 0.2), Layer(1e-5, 0.7, 0.2)
NETWORK = Network((NOISY, QUIET))


def estimator(goal: Goal, network: Network = NETWORK) -> Estimator:
    """From all integers, with right estimates."""
    named = zip(network.groups, network.layers, strict=True)
    noise = {group.anchor.name: layer.noise for group, layer in named}
    start = network.start
    point = MeasuredCandidate(
        start, network.score([start.precision(group) for group in network.groups])
    )

    def time_of(candidate: Candidate) -> float | None:
        return network.score([candidate.precision(group) for group in network.groups]).time_ratio

    return Estimator(point, ObjectiveFunction(goal, math.inf), NoiseEstimates(noise), time_of)


def test_what_is_expected_of_a_measured_point_is_what_was_measured() -> None:
    seen = estimator(Goal(min_sqnr_db=10))
    expected = seen.expected(seen.point.candidate)
    assert expected.violation_db == 0.0
    assert expected.noise == pytest.approx(1e-2 + 1e-5)
    assert expected.value == pytest.approx(0.4 - seen.objective.spare(20.0), abs=0.001)


def test_a_bound_that_one_layer_breaks_puts_that_one_into_float() -> None:
    seen = estimator(Goal(min_sqnr_db=40))
    best = seen.best(set())
    assert [best.precision(group) for group in NETWORK.groups] == [FLOAT, INTEGER]
    assert seen.expected(best).violation_db == 0.0


def test_a_candidate_beyond_a_bound_on_time_lacks_more_the_slower_it_is() -> None:
    seen = estimator(Goal(max_time=0.3))
    groups = NETWORK.groups
    later = seen.point.candidate.with_changes([PrecisionChange(groups[1], FLOAT)])
    assert 0 < seen.expected(seen.point.candidate).violation_db < seen.expected(later).violation_db


def test_two_layers_that_only_pay_together_change_together() -> None:
    """One alone in float would cost two conversions; both save what their noise took."""
    pair = Network((Layer(1e-3, 0.3, 0.3), Layer(1e-3, 0.3, 0.3)))

    def time_of(candidate: Candidate) -> float:
        floats = sum(candidate.precision(group) is FLOAT for group in pair.groups)
        return {0: 1.0, 1: 1.2, 2: 0.6}[floats]

    seen = estimator(Goal(min_sqnr_db=20), pair)
    best = Estimator(seen.point, seen.objective, seen.estimates, time_of).best(set())
    assert {best.precision(group) for group in pair.groups} == {FLOAT}


def test_neighbours_go_to_float_where_conversions_hide_what_each_saves_alone() -> None:
    """By times alone the last three would: each of the middle pays for two conversions."""
    layers = (
        Layer(1e-3, 0.3, 0.1),
        Layer(1e-3, 0.3, 0.2),
        Layer(1e-3, 0.3, 0.2),
        Layer(3e-3, 0.2, 0.2),
    )
    chain = Network(layers)
    seen = estimator(Goal(min_sqnr_db=25), chain)
    added = seen.time_of

    def time_of(candidate: Candidate) -> float:
        precisions = [candidate.precision(group) for group in chain.groups]
        conversions = sum(a is not b for a, b in itertools.pairwise(precisions))
        return (added(candidate) or 0.0) + 0.1 * conversions

    best = Estimator(seen.point, seen.objective, seen.estimates, time_of).best(set())
    assert [best.precision(group) for group in chain.groups] == [INTEGER, INTEGER, FLOAT, FLOAT]


def test_size_counts_a_byte_for_a_weight_that_is_not_in_float() -> None:
    assert share_of_bytes(NETWORK.start) == 0.25
    half = NETWORK.start.with_changes([PrecisionChange(NETWORK.groups[0], FLOAT)])
    assert share_of_bytes(half) == pytest.approx((4 + 1) / 8)
    seen = estimator(Goal(objective=Objective.SIZE))
    assert seen.expected(half).value == share_of_bytes(half)
