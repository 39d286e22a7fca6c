"""Pareto front: the points of which no other is as good in everything and better in something."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxq.tuning.scoring.score import Score
    from onnxq.tuning.search.candidate import MeasuredCandidate


def front_of(points: Iterable[MeasuredCandidate]) -> tuple[MeasuredCandidate, ...]:
    """The Pareto front in metric, time and size, the most accurate first; of equals, the first.

    Args:
        points: models that were measured, in the order in which they were.
    """
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
