from __future__ import annotations

import math
from dataclasses import replace

import pytest

from onnxq.operator import Precision
from onnxq.tuning.judging.goal import Goal
from onnxq.tuning.judging.standing import Standing
from onnxq.tuning.moving.moves import PER_TENSOR
from onnxq.tuning.moving.position import FormMove, Point
from onnxq.tuning.search.descent import Found
from onnxq.tuning.search.finalists import MOST, WholeTime, finalists, judged, reserves
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

LAYERS = tuple(Layer(1e-4, 0.2, 0.1) for _ in range(5))
NETWORK = Network(LAYERS)
STANDING = Standing(Goal(max_time=1.0), math.inf)


def point(floats: int, time: float) -> Point:
    """The position with so many layers in float, at that predicted time."""
    units = NETWORK.units
    position = NETWORK.start.moved(FormMove(unit, FLOAT) for unit in units[:floats])
    score = NETWORK.score([FLOAT] * floats + [INTEGER] * (len(units) - floats))
    return Point(position, replace(score, time_ratio=time))


class Clock:
    """Times models by the number of their layers in float."""

    def __init__(self, times: dict[int, float]) -> None:
        self.times = times

    def timed(self, points: list[Point]) -> list[Point]:
        return [
            replace(p, score=p.score.timed(self.times[len(p.position.forms)], (0.0, 2.0)))
            for p in points
        ]


def test_a_time_is_the_median_of_the_rounds() -> None:
    found = WholeTime.of([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    assert found.ratio == 2.0
    assert (found.low, found.high) == (2.0, 3.0)


def test_the_best_predicted_and_the_first_are_timed() -> None:
    points = [point(n, 0.5 + n / 10) for n in (5, 4, 3, 2, 1, 0)]
    chosen = finalists(points, STANDING)
    assert len(chosen) == MOST + 1
    assert points[0] in chosen


def test_whole_runs_decide_where_the_prediction_was_wrong() -> None:
    slow, fast = point(1, 0.5), point(2, 0.6)
    found = Found((slow, fast), slow, (), "")
    best = judged(found, Clock({1: 0.9, 2: 0.7}), STANDING).best  # type: ignore[arg-type]
    assert best.position == fast.position
    assert (best.score.time_ratio, best.score.predicted_time) == (0.7, 0.6)


def test_a_model_that_was_found_twice_is_one_point() -> None:
    found = Found((point(1, 0.5), point(1, 0.5)), point(1, 0.5), (), "")
    assert len(judged(found, Clock({1: 0.9}), STANDING).points) == 1  # type: ignore[arg-type]


def test_mappings_of_one_file_are_one_point() -> None:
    """With another scale for weights, where all are in float: the same numbers, the same bytes."""
    first = point(5, 1.0)
    again = Point(first.position.also(PER_TENSOR), first.score)
    found = Found((first, again), first, (), "")
    times = iter([1.0, 0.9])

    class Noisy(Clock):
        def timed(self, points: list[Point]) -> list[Point]:
            return [replace(p, score=p.score.timed(next(times), (0.0, 2.0))) for p in points]

    assert judged(found, Noisy({}), STANDING).points[0].position == first.position  # type: ignore[arg-type]
    assert len(judged(found, Clock({5: 1.0}), STANDING).points) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "is_taken"), [((0.82, 0.92), False), ((0.82, 0.88), True)], ids=["meets", "apart"]
)
def test_accuracy_is_paid_for_time_where_intervals_are_apart(
    interval: tuple[float, float], is_taken: bool
) -> None:
    fine = point(0, 0.9)
    worst = fine.score.worst_db - 3.0
    lossy = replace(fine.score, sqnr_db={"y": worst}, metric=worst)
    coarse = Point(fine.position.also(PER_TENSOR), lossy)
    intervals = {0: (0.9, 1.0), 1: interval}

    class Sure(Clock):
        def timed(self, points: list[Point]) -> list[Point]:
            found = [(p, intervals[len(p.position.whole)]) for p in points]
            return [replace(p, score=p.score.timed(sum(i) / 2, i)) for p, i in found]

    standing = Standing(Goal(min_sqnr_db=worst - 5.0), math.inf)
    best = judged(Found((fine, coarse), fine, (), ""), Sure({}), standing).best  # type: ignore[arg-type]
    assert bool(best.position.whole) is is_taken


def test_of_two_as_accurate_the_one_that_costs_less_is_taken() -> None:
    """One scale for weights whose rounding reaches no output that is judged."""
    first = point(0, 0.9)
    smaller = replace(first.score, size_bytes=first.score.size_bytes - 1)
    second = Point(first.position.also(PER_TENSOR), smaller)

    class Sure(Clock):
        def timed(self, points: list[Point]) -> list[Point]:
            times = [0.89 if p.position.whole else 0.9 for p in points]
            return [
                replace(p, score=p.score.timed(t, (t - 0.1, t + 0.1)))
                for p, t in zip(points, times, strict=True)
            ]

    found = Found((first, second), first, (), "")
    standing = Standing(Goal(min_sqnr_db=10.0), math.inf)
    assert judged(found, Sure({}), standing).best.position.whole  # type: ignore[arg-type]


STORED = Precision.WEIGHT_ONLY


@pytest.mark.parametrize(
    ("goal", "interval", "is_taken"),
    [
        (Goal(min_sqnr_db=30.0), (0.95, 1.01), True),
        (Goal(min_sqnr_db=30.0), (1.05, 1.1), False),  # slower, not by chance
        (Goal(min_sqnr_db=45.0), (0.95, 1.01), False),  # not accurate enough
        (Goal(max_time=1.1), (0.95, 1.01), False),  # nobody said what may be lost
    ],
)
def test_stored_weights_are_taken_before_float_ones_that_are_not_known_to_be_faster(
    goal: Goal, interval: tuple[float, float], is_taken: bool
) -> None:
    in_float = point(5, 1.0)
    position = NETWORK.start.moved(FormMove(unit, STORED) for unit in NETWORK.units)
    size = in_float.score.size_bytes // 4
    stored = Point(position, replace(in_float.score, sqnr_db={"y": 40.0}, size_bytes=size))
    intervals = {in_float.score.size_bytes: (0.94, 1.0), size: interval}

    class Sure(Clock):
        def timed(self, points: list[Point]) -> list[Point]:
            found = [(p, intervals[p.score.size_bytes]) for p in points]
            return [replace(p, score=p.score.timed(sum(i) / 2, i)) for p, i in found]

    standing = Standing(goal, math.inf)
    best = judged(Found((in_float, stored), in_float, (), ""), Sure({}), standing).best  # type: ignore[arg-type]
    assert (best.position == position) is is_taken


def test_all_in_float_is_a_reserve_of_every_bound_on_the_time() -> None:
    (only,) = reserves(NETWORK.start)  # these layers cannot be stored
    assert [only.form(unit) for unit in only.units] == [FLOAT] * len(LAYERS)


@pytest.mark.parametrize("times", [{0: 1.05, 5: 1.0}])
def test_a_bound_on_the_time_that_no_other_keeps_is_kept_by_all_in_float(
    times: dict[int, float],
) -> None:
    found = Found((point(0, 0.9), point(5, 1.0)), point(0, 0.9), (), "")
    best = judged(found, Clock(times), STANDING).best  # type: ignore[arg-type]
    assert len(best.position.forms) == 5


def test_all_in_float_names_units_that_began_in_float_and_what_is_with_them() -> None:
    (only,) = reserves(NETWORK.start.moved(FormMove(unit, FLOAT) for unit in NETWORK.units))
    assert set(only.forms) == {unit.anchor.name for unit in NETWORK.units}
