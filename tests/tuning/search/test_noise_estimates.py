from __future__ import annotations

import math

import pytest

from onnxq.observers.tensor_noise import noise_at
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.noise_estimates import NoiseEstimates, spread
from onnxq.tuning.sensitivity import GroupCost
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

NETWORK = Network((Layer(1e-4, 0.5, 0.2), Layer(1e-2, 0.5, 0.3), Layer(1e-3, 0.5, 0.3)))
FIRST, SECOND, THIRD = NETWORK.groups


def test_noise_of_a_group_is_that_of_its_groups_in_equal_parts_and_parts_of_it_count_more() -> None:
    found = spread({"all": 3e-3, "first": 1e-4}, {"all": NETWORK.groups, "first": [FIRST]})
    assert found == pytest.approx({"/layer0": 1e-4, "/layer1": 1e-3, "/layer2": 1e-3})


def test_groups_that_nobody_measured_are_not_taken_for_quiet() -> None:
    found = spread({"a": 1e-3, "b": 3e-3}, {"a": [FIRST], "b": [SECOND], "c": [THIRD]})
    assert found["/layer2"] == pytest.approx(2e-3)
    assert spread({}, {"c": [THIRD]}) == {}


def test_estimates_meet_what_was_measured_and_are_corrected_by_what_a_changes_changed() -> None:
    estimates = NoiseEstimates({group.anchor.name: 1e-3 for group in NETWORK.groups})
    start = NETWORK.start
    score = NETWORK.score([start.precision(group) for group in NETWORK.groups])
    estimates.meet(start, score)
    assert estimates.total(start) == pytest.approx(1.11e-2)
    change = PrecisionChange(SECOND, FLOAT)
    after = NETWORK.score(
        [start.with_changes([change]).precision(group) for group in NETWORK.groups]
    )
    estimates.correct(MeasuredCandidate(start, score), [change], after)
    assert estimates.gain(start, change) == pytest.approx(1e-2)


def test_changes_are_expected_to_bring_as_many_decibels_of_those_promised_as_the_last_ones() -> (
    None
):
    estimates = NoiseEstimates({group.anchor.name: 1e-3 for group in NETWORK.groups})
    start = NETWORK.start
    begun = Score(30.0, {"y": 30.0}, 1)
    estimates.meet(start, begun)
    changes = [PrecisionChange(FIRST, FLOAT), PrecisionChange(SECOND, FLOAT)]
    promised = 10 * math.log10(3)
    found = 30.0 + promised / 2
    after = Score(found, {"y": found}, 1)
    estimates.learn(MeasuredCandidate(start, begun), changes, after)
    estimates.correct(MeasuredCandidate(start, begun), changes, after)
    assert estimates.total(start) == pytest.approx(1e-3)
    assert estimates.total(start.with_changes(changes)) == pytest.approx(
        1e-3 * noise_at(promised / 2)
    )
    assert estimates.total(start.with_changes([*changes, PrecisionChange(THIRD, FLOAT)])) < 1e-6
    for noise in (1e-4, 1e-3, 1e-2):
        assert estimates.sum_for(noise) == pytest.approx(1e-3 * (noise / 1e-3) ** 2)
    for change in changes:  # nothing is left to put down to them
        assert estimates.of(change.group, INTEGER) == pytest.approx(1e-3 / 3)


def test_a_group_that_loses_all_leaves_something_known_of_the_others() -> None:
    """An output of zeros, or of another shape: its noise is beyond all, and no infinity."""
    lost = GroupCost("g", 0.01, {"y": math.nan})
    estimates = NoiseEstimates({FIRST.anchor.name: lost.noise, SECOND.anchor.name: 1e-3})
    estimates.meet(NETWORK.start, Score(-math.inf, {"y": math.nan}, 1))
    without = estimates.total(NETWORK.start.with_changes([PrecisionChange(FIRST, FLOAT)]))
    assert without == pytest.approx(1e-3, rel=1e-3)
