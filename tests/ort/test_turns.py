from __future__ import annotations

import pytest

from onnxq.ort.turns import MOST_IN_TURN, TURN_S, Schedule, repeats_of, round_seconds, taking_turns


def test_turns_alternate_in_their_order() -> None:
    seen: list[int] = []
    runs = [lambda i=i: seen.append(i) for i in range(3)]
    found = taking_turns(runs, Schedule(2, (1, 1, 2)))
    assert seen == [2, 2, 2, 1, 0, 0, 1, 2, 2, 2]  # one of several is not counted
    assert [len(each) for each in found] == [2, 2, 2]


@pytest.mark.parametrize(
    ("seconds", "repeats"),
    [(0.0, MOST_IN_TURN), (TURN_S / 5, 5), (TURN_S, 1), (100 * TURN_S, 1)],
)
def test_short_runs_are_several_in_a_turn(seconds: float, repeats: int) -> None:
    assert repeats_of(seconds) == repeats


def test_a_round_has_the_runs_that_are_not_counted() -> None:
    assert round_seconds((1.0, 10.0), (3, 1)) == 14.0


def test_models_that_are_compared_have_turns_of_as_many_runs() -> None:
    schedule = Schedule.within(1.0, (TURN_S, TURN_S / 2.6), 1, 100)
    assert schedule.repeats == (3, 3)


def test_a_slow_model_is_not_run_as_often_as_a_fast_one_where_time_does_not_pay_for_it() -> None:
    schedule = Schedule.within(0.3, (1e-4, 0.1), 2, 100)
    assert schedule == Schedule(2, (1, 1))
