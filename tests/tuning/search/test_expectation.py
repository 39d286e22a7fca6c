from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from onnxq.tuning.scoring.goal import Aim, Goal
from onnxq.tuning.scoring.objective_function import Standing
from onnxq.tuning.search.candidate import FormMove, Point
from onnxq.tuning.search.change_costs import share_of_bytes
from onnxq.tuning.search.estimator import Estimates
from onnxq.tuning.search.expectation import Outlook
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

if TYPE_CHECKING:
    from onnxq.tuning.search.candidate import Position

NOISY, QUIET = Layer(1e-2, 0.3, 0.2), Layer(1e-5, 0.7, 0.2)
NETWORK = Network((NOISY, QUIET))


def outlook(goal: Goal, network: Network = NETWORK) -> Outlook:
    """From all integers, with right estimates."""
    named = zip(network.units, network.layers, strict=True)
    noise = {unit.anchor.name: layer.noise for unit, layer in named}
    start = network.start
    point = Point(start, network.score([start.form(unit) for unit in network.units]))

    def time_of(position: Position) -> float | None:
        return network.score([position.form(unit) for unit in network.units]).time_ratio

    return Outlook(point, Standing(goal, math.inf), Estimates(noise), time_of)


def test_what_is_expected_of_a_measured_point_is_what_was_measured() -> None:
    seen = outlook(Goal(min_sqnr_db=10))
    expected = seen.expected(seen.point.position)
    assert expected.lacks == 0.0
    assert expected.noise == pytest.approx(1e-2 + 1e-5)
    assert expected.worth == pytest.approx(0.4 - seen.standing.spare(20.0), abs=0.001)


def test_a_bound_that_one_layer_breaks_puts_that_one_into_float() -> None:
    seen = outlook(Goal(min_sqnr_db=40))
    best = seen.best(set())
    assert [best.form(unit) for unit in NETWORK.units] == [FLOAT, INTEGER]
    assert seen.expected(best).lacks == 0.0


def test_a_position_beyond_a_bound_on_time_lacks_more_the_slower_it_is() -> None:
    seen = outlook(Goal(max_time=0.3))
    units = NETWORK.units
    later = seen.point.position.moved([FormMove(units[1], FLOAT)])
    assert 0 < seen.expected(seen.point.position).lacks < seen.expected(later).lacks


def test_two_layers_that_only_pay_together_change_together() -> None:
    """One alone in float would cost two conversions; both save what their noise took."""
    pair = Network((Layer(1e-3, 0.3, 0.3), Layer(1e-3, 0.3, 0.3)))

    def time_of(position: Position) -> float:
        floats = sum(position.form(unit) is FLOAT for unit in pair.units)
        return {0: 1.0, 1: 1.2, 2: 0.6}[floats]

    seen = outlook(Goal(min_sqnr_db=20), pair)
    best = Outlook(seen.point, seen.standing, seen.estimates, time_of).best(set())
    assert {best.form(unit) for unit in pair.units} == {FLOAT}


def test_size_counts_a_byte_for_a_weight_that_is_not_in_float() -> None:
    assert share_of_bytes(NETWORK.start) == 0.25
    half = NETWORK.start.moved([FormMove(NETWORK.units[0], FLOAT)])
    assert share_of_bytes(half) == pytest.approx((4 + 1) / 8)
    seen = outlook(Goal(objective=Aim.SIZE))
    assert seen.expected(half).worth == share_of_bytes(half)
