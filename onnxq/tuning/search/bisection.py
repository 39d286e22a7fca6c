"""Halving of moves, which finds what a bound allows where estimates of noise do not tell.

A metric that counts answers follows no estimate: of two models with the same noise one has an
answer more, and a model with less noise may have one less. Two things hold all the same. Float
keeps every bound on accuracy, so that somewhere on the way to it the bound begins to be kept; and
of moves that cost an answer, some part is not at fault. Both are found by halves, in runs that grow
with the logarithm of the units, or with the parts that are at fault (delta debugging: Zeller and
Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq.tuning.scoring.objective_function import Standing
    from onnxq.tuning.search.candidate import Point, Position
    from onnxq.tuning.search.proposals import Batch, Proposals

Measure = Callable[["Position"], "Point | None"]
"""Measures a position; None: it gives no model, or no run is left."""


def nearest_kept(point: Point, way: Batch, measure: Measure, standing: Standing) -> Point | None:
    """A point as accurate as is wanted by as few moves as halves tell; None: none is found.

    A bound on time is not asked for: what lies nearer to float is slower. What gives no model gives
    none with more of the moves.

    Args:
        point: that lacks accuracy.
        way: moves, in whose order they are taken; all of them together are taken not to lack any.
        measure: measures.
        standing: what is wanted.
    """
    kept, short, enough = None, 0, len(way)
    while enough - short > 1:
        middle = (short + enough) // 2
        found = measure(point.position.moved(way[:middle]))
        if found is None:
            enough = middle
        elif standing.lacking_db(found.score):
            short = middle
        else:
            kept, enough = found, middle
    return kept


def back(
    point: Point,
    way: Batch,
    measure: Measure,
    proposals: Proposals,
    has_runs: Callable[[], bool] = lambda: True,
) -> Point:
    """The best of a point and those in which parts of its moves towards the objective are taken.

    All of them are tried at once, then halves of what made nothing better, as long as these should
    save what is worth a run.

    Args:
        point: that keeps its bounds.
        way: moves, in whose order they are halved.
        measure: measures.
        proposals: of moves.
        has_runs: whether any are left.
    """
    order = proposals.standing.order
    parts = [way]
    while parts:
        at_fault: list[Batch] = []
        for part in parts:
            if not has_runs():
                return point
            if not proposals.is_saving(point, part):
                continue
            found = measure(point.position.moved(part))
            if found is not None and order(found.score) < order(point.score):
                point = found
            elif len(part) > 1:
                middle = (len(part) + 1) // 2
                at_fault += [part[:middle], part[middle:]]
        parts = at_fault
    return point
