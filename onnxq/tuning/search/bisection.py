"""Halving of changes, which finds what a bound allows where estimates of noise do not tell.

A metric that counts answers follows no estimate: of two models with the same noise one has an
answer more, and a model with less noise may have one less. Two things hold all the same. Float
keeps every bound on accuracy, so that somewhere on the way to it the bound begins to be kept; and
of changes that cost an answer, some part is not at fault. Both are found by halves, in runs that
grow with the logarithm of the groups, or with the parts that are at fault (delta debugging: Zeller
and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq.tuning.scoring.objective_function import ObjectiveFunction
    from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate
    from onnxq.tuning.search.proposals import Batch, Proposals

Measure = Callable[["Candidate"], "MeasuredCandidate | None"]
"""Measures a candidate; None: it gives no model, or no run is left."""


def nearest_kept(
    point: MeasuredCandidate, way: Batch, measure: Measure, objective: ObjectiveFunction
) -> MeasuredCandidate | None:
    """A point as accurate as is wanted by as few changes as halves tell; None: none is found.

    A bound on time is not asked for: what lies nearer to float is slower. What gives no model gives
    none with more of the changes.

    Args:
        point: that lacks accuracy.
        way: changes, in whose order they are taken; all of them together are taken not to lack any.
        measure: measures.
        objective: what is wanted.
    """
    kept, short, enough = None, 0, len(way)
    while enough - short > 1:
        middle = (short + enough) // 2
        found = measure(point.candidate.with_changes(way[:middle]))
        if found is None:
            enough = middle
        elif objective.missing_db(found.score):
            short = middle
        else:
            kept, enough = found, middle
    return kept


def back(
    point: MeasuredCandidate,
    way: Batch,
    measure: Measure,
    proposals: Proposals,
    has_runs: Callable[[], bool] = lambda: True,
) -> MeasuredCandidate:
    """The best of a point and those in which parts of its changes towards the objective are taken.

    All of them are tried at once, then halves of what made nothing better, as long as these should
    save what is worth a run.

    Args:
        point: that keeps its bounds.
        way: changes, in whose order they are halved.
        measure: measures.
        proposals: of changes.
        has_runs: whether any are left.
    """
    order = proposals.objective.order
    parts = [way]
    while parts:
        at_fault: list[Batch] = []
        for part in parts:
            if not has_runs():
                return point
            if not proposals.is_saving(point, part):
                continue
            found = measure(point.candidate.with_changes(part))
            if found is not None and order(found.score) < order(point.score):
                point = found
            elif len(part) > 1:
                middle = (len(part) + 1) // 2
                at_fault += [part[:middle], part[middle:]]
        parts = at_fault
    return point
