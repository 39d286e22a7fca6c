from __future__ import annotations

import math
from dataclasses import replace

import pytest

from onnxq.operator import Precision
from onnxq.times.timed_runs import WholeTime
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.objective_function import ObjectiveFunction
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import MeasuredCandidate, PrecisionChange, WeightsPerTensor
from onnxq.tuning.search.local_search import SearchEnd, SearchResult
from onnxq.tuning.search.pareto_candidates import (
    MOST,
    float_candidates,
    front_of,
    judged,
    pareto_candidates,
)
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

LAYERS = tuple(Layer(1e-4, 0.2, 0.1) for _ in range(5))
NETWORK = Network(LAYERS)
OBJECTIVE = ObjectiveFunction(Goal(max_time=1.0), math.inf)


def point(floats: int, time: float) -> MeasuredCandidate:
    """The candidate with so many layers in float, at that predicted time."""
    groups = NETWORK.groups
    candidate = NETWORK.start.with_changes(
        PrecisionChange(group, FLOAT) for group in groups[:floats]
    )
    score = NETWORK.score([FLOAT] * floats + [INTEGER] * (len(groups) - floats))
    return MeasuredCandidate(candidate, replace(score, time_ratio=time))


class Clock:
    """Times models by the number of their layers in float."""

    def __init__(self, times: dict[int, float]) -> None:
        self.times = times

    def timed(self, points: list[MeasuredCandidate]) -> list[MeasuredCandidate]:
        return [
            replace(p, score=p.score.timed(self.times[len(p.candidate.precisions)], (0.0, 2.0)))
            for p in points
        ]


def test_a_time_is_the_median_of_the_rounds() -> None:
    found = WholeTime.of([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    assert found.ratio == 2.0
    assert (found.low, found.high) == (2.0, 3.0)


def test_the_best_predicted_and_the_first_are_timed() -> None:
    points = [point(n, 0.5 + n / 10) for n in (5, 4, 3, 2, 1, 0)]
    chosen = pareto_candidates(points, OBJECTIVE)
    assert len(chosen) == MOST + 1
    assert points[0] in chosen


def test_whole_runs_decide_where_the_prediction_was_wrong() -> None:
    slow, fast = point(1, 0.5), point(2, 0.6)
    found = SearchResult((slow, fast), slow, (), SearchEnd.NO_CHANGE)
    best = judged(found, Clock({1: 0.9, 2: 0.7}), OBJECTIVE).best  # type: ignore[arg-type]
    assert best.candidate == fast.candidate
    assert (best.score.time_ratio, best.score.predicted_time) == (0.7, 0.6)


def test_a_model_that_was_found_twice_is_one_point() -> None:
    found = SearchResult((point(1, 0.5), point(1, 0.5)), point(1, 0.5), (), SearchEnd.NO_CHANGE)
    assert len(judged(found, Clock({1: 0.9}), OBJECTIVE).points) == 1  # type: ignore[arg-type]


def test_mappings_of_one_file_are_one_point() -> None:
    """With another scale for weights, where all are in float: the same numbers, the same bytes."""
    first = point(5, 1.0)
    again = MeasuredCandidate(first.candidate.also(WeightsPerTensor(NETWORK.groups)), first.score)
    found = SearchResult((first, again), first, (), SearchEnd.NO_CHANGE)
    times = iter([1.0, 0.9])

    class Noisy(Clock):
        def timed(self, points: list[MeasuredCandidate]) -> list[MeasuredCandidate]:
            return [replace(p, score=p.score.timed(next(times), (0.0, 2.0))) for p in points]

    assert judged(found, Noisy({}), OBJECTIVE).points[0].candidate == first.candidate  # type: ignore[arg-type]
    assert len(judged(found, Clock({5: 1.0}), OBJECTIVE).points) == 1  # type: ignore[arg-type]


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
    candidate = NETWORK.start.with_changes(
        PrecisionChange(group, STORED) for group in NETWORK.groups
    )
    size = in_float.score.size_bytes // 4
    stored = MeasuredCandidate(
        candidate, replace(in_float.score, sqnr_db={"y": 40.0}, size_bytes=size)
    )
    intervals = {in_float.score.size_bytes: (0.94, 1.0), size: interval}

    class Sure(Clock):
        def timed(self, points: list[MeasuredCandidate]) -> list[MeasuredCandidate]:
            found = [(p, intervals[p.score.size_bytes]) for p in points]
            return [replace(p, score=p.score.timed(sum(i) / 2, i)) for p, i in found]

    objective = ObjectiveFunction(goal, math.inf)
    found = SearchResult((in_float, stored), in_float, (), SearchEnd.NO_CHANGE)
    best = judged(found, Sure({}), objective).best  # type: ignore[arg-type]
    assert (best.candidate == candidate) is is_taken


def test_all_in_float_is_a_float_candidates_of_every_bound_on_the_time() -> None:
    (only,) = float_candidates(NETWORK.start)  # these layers cannot be stored
    assert [only.precision(group) for group in only.groups] == [FLOAT] * len(LAYERS)


@pytest.mark.parametrize("times", [{0: 1.05, 5: 1.0}])
def test_a_bound_on_the_time_that_no_other_keeps_is_kept_by_all_in_float(
    times: dict[int, float],
) -> None:
    found = SearchResult((point(0, 0.9), point(5, 1.0)), point(0, 0.9), (), SearchEnd.NO_CHANGE)
    best = judged(found, Clock(times), OBJECTIVE).best  # type: ignore[arg-type]
    assert len(best.candidate.precisions) == 5


def test_all_in_float_names_groups_that_began_in_float_and_what_is_with_them() -> None:
    (only,) = float_candidates(
        NETWORK.start.with_changes(PrecisionChange(group, FLOAT) for group in NETWORK.groups)
    )
    assert set(only.precisions) == {group.anchor.name for group in NETWORK.groups}


NOWHERE = Network((Layer(1e-3, 1.0, 0.5),)).start


def scored(metric: float, time: float | None, size: int) -> MeasuredCandidate:
    return MeasuredCandidate(NOWHERE, Score(metric, {"y": metric}, size, time))


def test_front_keeps_what_is_best_in_something() -> None:
    accurate, fast, small = scored(40, 0.9, 300), scored(30, 0.5, 300), scored(30, 0.9, 100)
    assert front_of([small, accurate, fast, scored(30, 0.95, 350)]) == (accurate, fast, small)


def test_front_has_the_first_of_equals() -> None:
    first, second = scored(40, 0.9, 300), scored(40, 0.9, 300)
    assert front_of([first, second])[0] is first


def test_models_without_a_time_are_compared_in_the_rest() -> None:
    worse, better = scored(30, None, 300), scored(40, None, 300)
    assert front_of([worse, better]) == (better,)
