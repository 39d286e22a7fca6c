from __future__ import annotations

from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import MeasuredCandidate
from onnxq.tuning.search.pareto_front import front_of
from tests.tuning.made_up import Layer, Network

NOWHERE = Network((Layer(1e-3, 1.0, 0.5),)).start


def point(metric: float, time: float | None, size: int) -> MeasuredCandidate:
    return MeasuredCandidate(NOWHERE, Score(metric, {"y": metric}, size, time))


def test_front_keeps_what_is_best_in_something() -> None:
    accurate, fast, small = point(40, 0.9, 300), point(30, 0.5, 300), point(30, 0.9, 100)
    assert front_of([small, accurate, fast, point(30, 0.95, 350)]) == (accurate, fast, small)


def test_front_has_the_first_of_equals() -> None:
    first, second = point(40, 0.9, 300), point(40, 0.9, 300)
    assert front_of([first, second])[0] is first


def test_models_without_a_time_are_compared_in_the_rest() -> None:
    worse, better = point(30, None, 300), point(40, None, 300)
    assert front_of([worse, better]) == (better,)
