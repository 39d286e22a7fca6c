"""Pareto candidates of a search: whole models, timed in turns with the float model.

Predicted times add up from nodes; they order a search, and are some hundredths off. What a goal
says of time is judged on whole runs, each of them once: they are kept in the journal.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping
from onnxq.times.model_times import IN_FLOAT
from onnxq.times.timed_runs import WholeTime, time_beside_float
from onnxq.tuning.evaluation.evaluations import Journal, key_of
from onnxq.tuning.evaluation.evaluator import Evaluator
from onnxq.tuning.scoring.objective_function import ObjectiveFunction
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate
from onnxq.tuning.search.local_search import SearchResult

TIMED = "timed"
"""Kind of the records in the journal."""
SECONDS = 0.5
"""CPU seconds that go into the runs of each point."""
MOST = 4
"""Points that are timed, of those that were found."""
FLOAT_PRECISIONS = (Precision.FLOAT, Precision.WEIGHT_ONLY)
"""All groups can take one of these without a loss of time: kernels are the float model's."""


@dataclass(frozen=True, eq=False)
class Clock:
    """Times whole models, each once."""

    evaluator: Evaluator
    journal: Journal

    def times(self, mappings: Sequence[QConfigMapping]) -> list[WholeTime]:
        """Times of the models of mappings, those that the journal lacks in turns with float."""
        asked = {key_of(mapping): mapping for mapping in mappings}
        lacking = [key for key in asked if self.journal.find(TIMED, key, WholeTime) is None]
        if lacking:
            floats, row = self.evaluator.subject.canonical.model, self.evaluator.one_row()
            for key in lacking:
                model = self.evaluator.running(asked[key]).model
                self.journal.append(TIMED, key, time_beside_float(floats, model, row, SECONDS))
        found = [self.journal.find(TIMED, key_of(mapping), WholeTime) for mapping in mappings]
        return [each for each in found if each is not None]

    def timed(self, points: Sequence[MeasuredCandidate]) -> list[MeasuredCandidate]:
        """The points, each with the time of its whole runs in its score."""
        times = self.times([point.candidate.mapping for point in points])
        return [
            replace(point, score=point.score.timed(each.ratio, (each.low, each.high)))
            for point, each in zip(points, times, strict=True)
        ]


def judged(found: SearchResult, clock: Clock | None, objective: ObjectiveFunction) -> SearchResult:
    """The same search with the best by times of whole runs; each file once, as it was found first.

    Times of one file differ from run to run, and would choose among its mappings. Without a clock
    predicted times are all there is.
    """
    points: dict[tuple[object, ...], MeasuredCandidate] = {}
    for point in found.points:
        points.setdefault(point.score.likeness, point)
    timed = list(points.values())
    if clock is not None:
        timed = clock.timed(pareto_candidates(timed, objective))
        points |= {point.score.likeness: point for point in timed}
        timed = [point for point in points.values() if point.score.time_range is not None]
    fastest = min(timed, key=lambda point: objective.order(point.score))
    best = _stored_as_fast(fastest, timed, objective)
    return replace(found, points=tuple(points.values()), best=best)


def _stored_as_fast(
    best: MeasuredCandidate, timed: Sequence[MeasuredCandidate], objective: ObjectiveFunction
) -> MeasuredCandidate:
    """The smallest point that computes in float as the best does, and is not known to take longer.

    Stored weights are unpacked when the model is loaded, and kernels are the float model's: a time
    that tells such models apart is the clock's doing, and the float model again is four times as
    large for nothing. Without a bound on accuracy nobody said what they may lose.
    """
    is_speed = objective.goal.objective is Objective.SPEED
    if not (is_speed and objective.bounds_accuracy and _computes_in_float(best)):
        return best
    most, violation_db = _interval(best)[1], objective.violation_db(best.score)
    alike = [
        point
        for point in timed
        if _computes_in_float(point)
        and _interval(point)[0] <= most
        and objective.violation_db(point.score) <= violation_db
    ]
    return min(alike, key=lambda point: point.score.size_bytes)


def _computes_in_float(point: MeasuredCandidate) -> bool:
    return all(point.candidate.precision(group) in IN_FLOAT for group in point.candidate.groups)


def _interval(point: MeasuredCandidate) -> tuple[float, float]:
    """Bounds of its time; both are the prediction where it was not timed."""
    score = point.score
    if score.time_range is not None:
        return score.time_range
    ratio = math.inf if score.time_ratio is None else score.time_ratio
    return ratio, ratio


def pareto_candidates(
    points: Sequence[MeasuredCandidate], objective: ObjectiveFunction
) -> list[MeasuredCandidate]:
    """Points that may be the best: those that are as far as is known, and the first."""
    ordered = sorted(points, key=lambda point: objective.order(point.score))
    chosen = [*ordered[:MOST], points[0]]
    return list({key_of(point.candidate.mapping): point for point in chosen}.values())


def float_candidates(candidate: Candidate) -> list[Candidate]:
    """Candidates that are about as fast as float: all in float, or all weights in weight_only."""
    every = [_all_in(candidate, precision) for precision in FLOAT_PRECISIONS]
    return list({key_of(each.mapping): each for each in every}.values())


def stored_candidate(candidate: Candidate) -> list[Candidate]:
    """The candidate with all weights in weight_only; none where no group has that precision."""
    stored = _all_in(candidate, Precision.WEIGHT_ONLY)
    return [stored] if Precision.WEIGHT_ONLY in stored.precisions.values() else []


def _all_in(candidate: Candidate, precision: Precision) -> Candidate:
    """All groups with all of their nodes, of which some may have begun in another precision."""
    precisions = {
        group.anchor.name: precision if precision in group.precisions else Precision.FLOAT
        for group in candidate.groups
    }
    return replace(candidate, whole=(), precisions=precisions)


def front_of(points: Iterable[MeasuredCandidate]) -> tuple[MeasuredCandidate, ...]:
    """The Pareto front in metric, time and size, the most accurate first; of equals, the first."""
    kept: list[MeasuredCandidate] = []
    for point in points:
        if any(_covers(other.score, point.score) for other in kept):
            continue
        kept = [other for other in kept if not _covers(point.score, other.score)]
        kept.append(point)
    return tuple(sorted(kept, key=lambda point: (-point.score.metric, _time(point.score))))


def _covers(score: Score, other: Score) -> bool:
    """Whether a score is at least as good in everything."""
    return (
        score.metric >= other.metric
        and _time(score) <= _time(other)
        and score.size_bytes <= other.size_bytes
    )


def _time(score: Score) -> float:
    return math.inf if score.time_ratio is None else score.time_ratio
