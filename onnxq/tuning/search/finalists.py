"""Finalists of a search: whole models beside the float model, in turns, for the time that counts.

Predicted times add up from nodes; they order a search, and are some hundredths off. What a goal
says of time is judged on whole runs, each of them once: they are kept in the journal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from onnxq.core.saved import Saved
from onnxq.operator import Precision
from onnxq.tuning.evaluating.evaluations import key_of
from onnxq.tuning.evaluating.timed_runs import one_row, whole_times
from onnxq.tuning.judging.goal import Aim
from onnxq.tuning.timing.time_model import IN_FLOAT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.evaluating.evaluator import Evaluator
    from onnxq.tuning.evaluating.journal import Journal
    from onnxq.tuning.judging.standing import Standing
    from onnxq.tuning.moving.position import Point, Position
    from onnxq.tuning.search.descent import Found

TIMED = "timed"
"""Kind of the records in the journal."""
MOST = 4
"""Points that are timed, of those that were found."""
SITTINGS = 2
"""Times that finalists are chosen: those that turn out slower make room for others."""
RESERVES = (Precision.FLOAT, Precision.WEIGHT_ONLY)
"""Forms that all units can take together without a loss of time: kernels are the float model's."""


@dataclass(frozen=True)
class WholeTime(Saved):
    """Time of a model's whole runs over the float model's, one thread, in turns.

    Attributes:
        ratio: median of the ratios of the rounds.
        low, high: interval of 95% for it.
    """

    FORMAT: ClassVar[str] = "onnxq whole time 1"
    NOUN: ClassVar[str] = "a time of whole runs"
    ANEW: ClassVar[str] = "Begin a new journal."

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Self:
        """The ratio of the times of two models in the same rounds.

        The median lies between the ratios of ranks n / 2 -+ 0.98 sqrt(n) of n rounds with 95%,
        however they are distributed.
        """
        ratios = np.sort(np.asarray(ours) / np.asarray(theirs))
        low = max(math.floor(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios))), 0)
        return cls(
            float(np.median(ratios)), float(ratios[low]), float(ratios[len(ratios) - 1 - low])
        )


@dataclass(frozen=True, eq=False)
class Clock:
    """Times whole models, each once.

    Attributes:
        evaluator: makes them.
        journal: keeps the times.
    """

    evaluator: Evaluator
    journal: Journal

    def times(self, mappings: Sequence[QConfigMapping]) -> list[WholeTime]:
        """Times of the models of mappings, those that the journal lacks in turns with float.

        Raises:
            ModelError, CalibrationError: one of them does not run.
        """
        asked = {key_of(mapping): mapping for mapping in mappings}
        lacking = [key for key in asked if self.journal.find(TIMED, key, WholeTime) is None]
        if lacking:
            models = [self.evaluator.running(asked[key]).model for key in lacking]
            floats = self.evaluator.subject.canonical.model
            beside, *taken = whole_times([floats, *models], one_row(self.evaluator))
            for key, ours in zip(lacking, taken, strict=True):
                self.journal.append(TIMED, key, WholeTime.of(ours, beside))
        found = [self.journal.find(TIMED, key_of(mapping), WholeTime) for mapping in mappings]
        return [each for each in found if each is not None]

    def timed(self, points: Sequence[Point]) -> list[Point]:
        """The points, each with the time of its whole runs in its score."""
        times = self.times([point.position.mapping for point in points])
        return [
            replace(point, score=point.score.timed(each.ratio, (each.low, each.high)))
            for point, each in zip(points, times, strict=True)
        ]


def judged(found: Found, clock: Clock, standing: Standing) -> Found:
    """The same search with the best by times of whole runs; each file once, as it was found first.

    Times of one file differ from run to run, and would choose among its mappings.
    """
    points: dict[tuple[object, ...], Point] = {}
    for point in found.points:
        points.setdefault(point.score.likeness, point)
    for _ in range(SITTINGS):
        for point in clock.timed(finalists(list(points.values()), standing)):
            points[point.score.likeness] = point
    timed = [point for point in points.values() if point.score.time_range is not None]
    fastest = min(timed, key=lambda point: standing.order(point.score))
    best = _stored_as_fast(_quietest_as_fast(fastest, timed, standing), timed, standing)
    return replace(found, points=tuple(points.values()), best=best)


def best_predicted(points: Sequence[Point], standing: Standing) -> Point:
    """The best of the points where predicted times are all there is."""
    fastest = min(points, key=lambda point: standing.order(point.score))
    return _stored_as_fast(fastest, points, standing)


def _quietest_as_fast(fastest: Point, timed: Sequence[Point], standing: Standing) -> Point:
    """The most accurate of the points in the same forms that are not known to take longer.

    Where forms are the same, intervals that meet tell no times apart: no accuracy is paid for what
    may be the clock's doing.
    """
    if standing.goal.objective is not Aim.SPEED:
        return fastest
    most, lacks = _interval(fastest)[1], standing.lacks(fastest.score)
    alike = [
        point
        for point in timed
        if point.position.start == fastest.position.start
        and point.position.forms == fastest.position.forms
        and _interval(point)[0] <= most
        and standing.lacks(point.score) <= lacks
    ]
    return min(alike, key=_accuracy_then_cost)


def _accuracy_then_cost(point: Point) -> tuple[float, ...]:
    """Key that sorts by accuracy, the best first; of equals, by time and size."""
    score = point.score
    return -score.metric, -score.worst_db, score.time_ratio or math.inf, score.size_bytes


def _stored_as_fast(best: Point, timed: Sequence[Point], standing: Standing) -> Point:
    """The smallest point that computes in float as the best does, and is not known to take longer.

    Stored weights are unpacked when the model is loaded, and kernels are the float model's: a time
    that tells such models apart is the clock's doing, and the float model again is four times as
    large for nothing. Without a bound on accuracy nobody said what they may lose.
    """
    is_speed = standing.goal.objective is Aim.SPEED
    if not (is_speed and standing.bounds_accuracy and _computes_in_float(best)):
        return best
    most, lacks = _interval(best)[1], standing.lacks(best.score)
    alike = [
        point
        for point in timed
        if _computes_in_float(point)
        and _interval(point)[0] <= most
        and standing.lacks(point.score) <= lacks
    ]
    return min(alike, key=lambda point: point.score.size_bytes)


def _computes_in_float(point: Point) -> bool:
    return all(point.position.form(unit) in IN_FLOAT for unit in point.position.units)


def _interval(point: Point) -> tuple[float, float]:
    """Bounds of its time; both are the prediction where it was not timed."""
    score = point.score
    if score.time_range is not None:
        return score.time_range
    ratio = math.inf if score.time_ratio is None else score.time_ratio
    return ratio, ratio


def finalists(points: Sequence[Point], standing: Standing) -> list[Point]:
    """Points that may be the best: those that are as far as is known, and the first."""
    ordered = sorted(points, key=lambda point: standing.order(point.score))
    chosen = [*ordered[:MOST], points[0]]
    return list({key_of(point.position.mapping): point for point in chosen}.values())


def reserves(position: Position) -> list[Position]:
    """Positions that are as fast as float, or nearly: all in float, all weights stored."""
    every = [_all_in(position, form) for form in RESERVES]
    return list({key_of(each.mapping): each for each in every}.values())


def stored_reserve(position: Position) -> list[Position]:
    """The position with all weights stored; none where no unit can."""
    stored = _all_in(position, Precision.WEIGHT_ONLY)
    return [stored] if Precision.WEIGHT_ONLY in stored.forms.values() else []


def _all_in(position: Position, form: Precision) -> Position:
    """All units with all of their nodes, of which some may have begun in another form."""
    forms = {
        unit.anchor.name: form if form in unit.forms else Precision.FLOAT for unit in position.units
    }
    return replace(position, whole=(), forms=forms)
