"""Halving of changes, which finds what a bound allows where estimates of noise do not tell.

A metric that counts answers follows no estimate: of two models with the same noise one has an
answer more. But of changes that cost an answer, some part is not at fault, and halves find it, in
runs that grow with the parts that are (delta debugging: Zeller and Hildebrandt, Simplifying and
Isolating Failure-Inducing Input, 2002).
"""

from collections.abc import Callable

from onnxq.operator import Precision
from onnxq.tuning.scoring.objective_function import ObjectiveFunction
from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate
from onnxq.tuning.search.proposals import (
    LEAST_COST,
    Batch,
    Closed,
    Proposals,
    options_of,
    times_alone,
)

Measure = Callable[[Candidate], MeasuredCandidate | None]
"""Measures a candidate; None: it gives no model, or no run is left."""


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


def repaired(
    point: MeasuredCandidate, proposals: Proposals, measure: Measure, closed: Closed = ()
) -> MeasuredCandidate | None:
    """A point as accurate as is wanted, with as few groups in float as bisection finds; None: none.

        order    noise that a group brings, over the time that float costs it more: cheapest first
        count    the fewest of these that keep the bounds, by bisection: log2(groups) runs

    Estimates of noise give the order alone, so that rough ones do: those of a sensitivity analysis,
    or of the groups that a verdict blames, with next to none for all others. Whatever runs cost,
    `measure` says when there is no time left for one.

    Float keeps every bound on accuracy, so that somewhere on the way to it the bounds begin to be
    kept, whatever a metric counts.
    """
    changes = cheapest_first(point, proposals, closed)
    return fewest(point, changes, measure, proposals.objective)


def fewest(
    point: MeasuredCandidate, changes: Batch, measure: Measure, objective: ObjectiveFunction
) -> MeasuredCandidate | None:
    """The point with as few of the changes as are as accurate as is wanted; None: none is found.

    A bound on time is not asked for: what lies nearer to float is slower. What gives no model gives
    none with more of the changes.
    """
    kept, short, enough = None, 0, len(changes)
    while enough - short > 1:
        middle = (short + enough) // 2
        found = measure(point.candidate.with_changes(changes[:middle]))
        if found is None:
            enough = middle
        elif objective.missing_db(found.score):
            short = middle
        else:
            kept, enough = found, middle
    return kept


def cheapest_first(point: MeasuredCandidate, proposals: Proposals, closed: Closed = ()) -> Batch:
    """Changes of groups into float, those with the most noise for their time first."""
    candidate, estimates = point.candidate, proposals.estimates
    options = [m for m in options_of(candidate, closed) if m.precision is Precision.FLOAT]
    costs = times_alone(candidate, options, proposals.time_of)
    gains = {change: estimates.gain(candidate, change) for change in options}
    useful = [change for change in options if gains[change] > 0]
    return tuple(sorted(useful, key=lambda m: -gains[m] / max(costs[m], LEAST_COST)))
