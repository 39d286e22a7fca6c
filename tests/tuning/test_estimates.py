from __future__ import annotations

import pytest

from onnxq.tuning.estimates import Estimates, spread
from onnxq.tuning.position import FormMove, Point
from tests.tuning.made_up import FLOAT, Layer, Network

NETWORK = Network((Layer(1e-4, 0.5, 0.2), Layer(1e-2, 0.5, 0.3), Layer(1e-3, 0.5, 0.3)))
FIRST, SECOND, THIRD = NETWORK.units


def test_noise_of_a_group_is_that_of_its_units_in_equal_parts_and_parts_of_it_count_more() -> None:
    found = spread({"all": 3e-3, "first": 1e-4}, {"all": NETWORK.units, "first": [FIRST]})
    assert found == pytest.approx({"/layer0": 1e-4, "/layer1": 1e-3, "/layer2": 1e-3})


def test_units_that_nobody_measured_are_not_taken_for_quiet() -> None:
    found = spread({"a": 1e-3, "b": 3e-3}, {"a": [FIRST], "b": [SECOND], "c": [THIRD]})
    assert found["/layer2"] == pytest.approx(2e-3)
    assert spread({}, {"c": [THIRD]}) == {}


def test_estimates_meet_what_was_measured_and_are_corrected_by_what_a_move_changed() -> None:
    estimates = Estimates({unit.anchor.name: 1e-3 for unit in NETWORK.units})
    start = NETWORK.start
    score = NETWORK.score([start.form(unit) for unit in NETWORK.units])
    estimates.meet(start, score)
    assert estimates.total(start) == pytest.approx(1.11e-2)
    move = FormMove(SECOND, FLOAT)
    after = NETWORK.score([start.moved([move]).form(unit) for unit in NETWORK.units])
    estimates.correct(Point(start, score), [move], after)
    assert estimates.gain(start, move) == pytest.approx(1e-2)
