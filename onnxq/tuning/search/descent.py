"""Search for a mapping that reaches a goal: moves in batches, each of them measured.

    lacking accuracy   improvements that the user named, for they cost no time and no bytes; near
                       the goal, those of the whole model; moves that save time by the way; moves
                       that take away the most noise for the time that they cost, as many as should
                       do, at once
    lacking time       moves that save the most time for the noise that they add, likewise
    lacking nothing    moves towards the objective that should keep the bounds, among them those
                       back to the form that a unit began with; for the most accurate within a time,
                       units one by one whose noise decides, so that it is known and not estimated

Where that ends short of a bound on accuracy, or within one on a metric, whose answers estimates do
not tell, halves find the rest (onnxq.tuning.search.halves).

A batch that disappoints is measured in halves; so is one that gives no model, until the moves are
found that are at fault, which are never tried again, alone or with others. What a batch changed
corrects the estimates of its units, so that the next one is another. It ends where no move is left
that is worth a run, or with the budget. The same estimates and scores give the same search, but for
`is_late`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnxq.errors import QConfigError
from onnxq.tuning.evaluating.evaluations import Refusal
from onnxq.tuning.judging.goal import Aim
from onnxq.tuning.judging.standing import noise_of
from onnxq.tuning.moving.position import Point
from onnxq.tuning.search.halves import back, nearest_kept

if TYPE_CHECKING:
    from onnxq.operator import Precision
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.judging.score import Score
    from onnxq.tuning.moving.moves import WholeMove
    from onnxq.tuning.moving.position import Position
    from onnxq.tuning.moving.proposals import Batch, Proposals

EvaluateAll = Callable[[Sequence["QConfigMapping"]], "Sequence[Score | Refusal]"]
"""Measures mappings, which may run beside each other; results in their order."""

Offers = Callable[["Position"], "Sequence[WholeMove]"]
"""Gives moves of parts of a model that should take noise away from a position."""

NEAR_DB = 6.0
"""Distance from the goal at which moves of a whole model are tried: the most that one gave is 5.5
dB (smoothing all-MiniLM-L6-v2, docs/guides/improve.md). Farther off, other noise decides
what one gives.
"""
MOST_FAILURES = 3
"""Batches in a row that change nothing for the better, behind which a search ends: with the halves
that they are measured in, nine runs that found nothing."""
PROBES = 0.25
"""Share of the runs that may go into what units cost, where nothing else is worth one: with ten, a
network of 8 layers is 0.8 dB from the best at most, without up to 15 (tests/tuning/made_up.py)."""
DISAPPOINTING = 0.5
"""Share of the expected decibels below which a batch is measured in halves."""

LATE, NO_RUN = "the time is up", "no run is left"
NO_MOVE = "no move is left that is worth a run"
NO_GAIN = f"{MOST_FAILURES} batches in a row made nothing better"


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes:
        points: every model that was measured, in order; the first is where it began.
        best: the one that lacks least, and is best beyond that.
        refused: (moves in words, why) of those that cannot be quantized or do not run; of a batch,
            of the moves in it that are at fault.
        why: it ended, in words.
    """

    points: tuple[Point, ...]
    best: Point
    refused: tuple[tuple[tuple[str, ...], str], ...]
    why: str


@dataclass
class Descent:
    """Search from one position.

    Attributes:
        proposals: of moves.
        evaluate: measures.
        whole: moves of the whole model.
        runs: that it may take.
        is_late: whether the time is up.
        offers: gives moves of parts of the model, the best first; None: none are wanted.
        first: those of `whole` that are tried however far the goal is.
    """

    proposals: Proposals
    evaluate: EvaluateAll
    whole: Sequence[WholeMove]
    runs: int
    is_late: Callable[[], bool] = lambda: False
    offers: Offers | None = None
    first: Sequence[WholeMove] = ()
    _points: list[Point] = field(default_factory=list)
    _refused: dict[tuple[str, ...], str] = field(default_factory=dict)  # moves in words -> why
    _taken: int = 0  # runs, those that gave no model among them
    _closed: set[tuple[str, Precision]] = field(default_factory=set)  # tried alone, for nothing
    _impossible: set[tuple[str, Precision]] = field(default_factory=set)  # alone, and no model
    _probed: set[str] = field(default_factory=set)  # anchors of units whose noise was asked for
    _is_halved: bool = field(default=False)  # on the way back, which is gone once

    def run(self, start: Position, *others: Position) -> Found:
        """The way to the goal from there, or from another beginning if that is better.

        Raises:
            QConfigError: the start itself is refused.
        """
        best, *beside = self._measure([start, *others])
        if best is None:
            why = next(iter(self._refused.values()))
            raise QConfigError(f"the model to start from cannot be made: {why}")
        best = self._best(beside, best)
        if self.first and self.proposals.standing.lacking_db(best.score) > 0:
            best = self._best(self._with_ways(best, [(move,) for move in self.first]), best)
        failures, is_free_tried = 0, False
        whole = [move for move in self.whole if move not in best.position.whole]
        while self._left > 0:
            self.proposals.estimates.meet(best.position, best.score)
            batch: Batch = ()
            refused = len(self._refused)
            if whole and self._is_near(best):
                ways = [*((move,) for move in whole), *self._ways_of_parts(best.position)]
                found, whole = self._best(self._with_ways(best, ways), best), []
            elif not is_free_tried and (free := self.proposals.free(best)):
                found, is_free_tried = self._try(best, free), True
            elif failures < MOST_FAILURES and (batch := self.proposals.batch(best, self._closed)):
                found = self._try(best, batch)
            elif failures < MOST_FAILURES and (probe := self._probe(best)):
                found = probe
            elif (found := self._by_halves(best)) is best and self._left > 0:
                return self._found(best, NO_MOVE if failures < MOST_FAILURES else NO_GAIN)
            is_failure = found is best and batch and refused == len(self._refused)
            failures = failures + 1 if is_failure else 0
            best = found
        return self._found(best, LATE if self.is_late() else NO_RUN)

    def _found(self, best: Point, why: str) -> Found:
        return Found(tuple(self._points), best, tuple(self._refused.items()), why)

    @property
    def _left(self) -> int:
        """Runs that are left; where the search begins is measured however late it is."""
        return 0 if self._taken and self.is_late() else self.runs - self._taken

    def _measure(self, positions: Sequence[Position]) -> list[Point | None]:
        """The points, in order; None where one is refused or beyond the budget."""
        kept = positions[: max(self._left, 0)]
        self._taken += len(kept)
        found: list[Point | None] = [None] * len(positions)
        scores = self.evaluate([position.mapping for position in kept])
        for index, (position, score) in enumerate(zip(kept, scores, strict=True)):
            if isinstance(score, Refusal):
                self._refused[position.words] = score.reason
                continue
            point = Point(position, score)
            self._points.append(point)
            found[index] = point
        return found

    def _is_better(self, one: Point, other: Point) -> bool:
        order = self.proposals.standing.order
        return order(one.score) < order(other.score)

    def _best(self, points: Sequence[Point | None], otherwise: Point) -> Point:
        """The best of them; the first of equals, which is `otherwise` where none is better."""
        best = otherwise
        for point in points:
            if point is not None and self._is_better(point, best):
                best = point
        return best

    # --- moves of the whole model

    def _is_near(self, point: Point) -> bool:
        """Whether a decibel or two are all that is wanted."""
        standing = self.proposals.standing
        lacking = standing.lacking_db(point.score)
        return 0 < lacking <= NEAR_DB or (not lacking and standing.goal.objective is Aim.ACCURACY)

    def _is_enough(self, point: Point) -> bool:
        """Whether the accuracy is what was asked for, where there is a bound."""
        standing = self.proposals.standing
        accuracy = standing.goal.objective is Aim.ACCURACY
        return standing.bounds_accuracy and not accuracy and not standing.lacking_db(point.score)

    def _with_ways(self, point: Point, ways: Sequence[tuple[WholeMove, ...]]) -> list[Point | None]:
        """Points with each of the ways alone, and with all that help where none is enough.

        Of two ways to decide on one aspect, the better one is among those that help. Each is found
        on the samples of the search: more of them than are needed fit these alone.
        """
        alone = self._measure([point.position.also(*way) for way in ways])
        helping: dict[str, tuple[Point, tuple[WholeMove, ...]]] = {}
        for way, found in zip(ways, alone, strict=True):
            rival = helping.get(way[0].aspect, (point,))[0]
            if found is not None and self._is_better(found, rival):
                helping[way[0].aspect] = found, way
        if len(helping) < 2 or self._is_enough(self._best(alone, point)):
            return alone
        together = [move for _, way in helping.values() for move in way]
        return [*alone, *self._measure([point.position.also(*together)])]

    def _ways_of_parts(self, position: Position) -> list[tuple[WholeMove, ...]]:
        """Moves of parts of the model, those of an aspect together."""
        offered = self.offers(position) if self.offers is not None and self._left > 0 else ()
        by_aspect: dict[str, tuple[WholeMove, ...]] = {}
        for move in offered:
            by_aspect[move.aspect] = (*by_aspect.get(move.aspect, ()), move)
        return list(by_aspect.values())

    # --- batches of forms

    def _try(self, point: Point, batch: Batch) -> Point:
        """The best of the point and what a batch makes of it; in halves where it disappoints."""
        estimates = self.proposals.estimates
        expected = estimates.total(point.position.moved(batch))
        (found,) = self._measure([point.position.moved(batch)])
        if found is None:
            return self._withdrawn(point, batch)
        best = self._best([found], point)
        if self.proposals.standing.bounds_accuracy:  # else only their order counts
            estimates.learn(point, batch, found.score)
        estimates.correct(point, batch, found.score)
        if best is found and self._delivers(point, found, expected):
            return found
        if len(batch) == 1:
            self._close(batch, is_better=best is not point)
            return best
        middle = (len(batch) + 1) // 2
        halves = (batch[:middle], batch[middle:])
        parts = self._measure([point.position.moved(half) for half in halves])
        for half, part in zip(halves, parts, strict=True):
            if part is not None:
                estimates.correct(point, half, part.score)
            if len(half) == 1:
                self._close(half, is_better=part is not None and self._is_better(part, point))
        return self._best(parts, best)

    def _by_halves(self, point: Point) -> Point:
        """The best that halves find, where estimates find no more."""
        standing, goal = self.proposals.standing, self.proposals.standing.goal
        if standing.lacking_db(point.score):
            way = self.proposals.into_float(point, self._impossible)
            point = self._best([nearest_kept(point, way, self._measured, standing)], point)
        if self._is_halved or goal.max_drop is None or goal.objective is Aim.ACCURACY:
            return point
        if standing.lacks(point.score):
            return point
        self._is_halved = True
        way = self.proposals.back(point, self._impossible)
        return back(point, way, self._measured, self.proposals, lambda: self._left > 0)

    def _measured(self, position: Position) -> Point | None:
        return self._measure([position])[0]

    def _withdrawn(self, point: Point, batch: Batch) -> Point:
        """The best of the point and the parts of a batch that gives no model.

        Moves that give none by themselves are named, and never tried again. Where all parts give
        one, the best of them is where the search goes on: what does not go with it is found next.
        """
        position = point.position.moved(batch)
        if len(batch) == 1:
            self._close(batch, is_better=False)
            self._impossible |= {(move.unit.anchor.name, move.form) for move in batch}
            self._rename(position, batch)
        if len(batch) == 1 or self._left <= 0:
            return point
        middle = (len(batch) + 1) // 2
        halves = (batch[:middle], batch[middle:])
        before = self._refused.pop(position.words, None)
        parts = self._measure([point.position.moved(half) for half in halves])
        if all(parts) and before is not None:
            self._refused[position.words] = before  # together alone
        best = self._best(parts, point)
        for half, part in zip(halves, parts, strict=True):
            if part is None:
                found = self._withdrawn(point, half)
                best = found if self._is_better(found, best) else best
        return best

    def _rename(self, position: Position, batch: Batch) -> None:
        """Names a move that is refused by itself, whatever it was tried from."""
        why = self._refused.pop(position.words, None)
        if why is not None:
            alone = replace(position, forms={}, whole=()).moved(batch)
            self._refused[alone.words or position.words] = why

    def _probe(self, point: Point) -> Point | None:
        """The best of the point and one that tells the noise of a unit; None: enough is known."""
        if len(self._probed) >= PROBES * self.runs:
            return None
        batch = self.proposals.probe(point, self._probed)
        if not batch:
            return None
        self._probed |= {move.unit.anchor.name for move in batch}
        (found,) = self._measure([point.position.moved(batch)])
        if found is not None:
            self.proposals.estimates.correct(point, batch, found.score)
        return self._best([found], point)

    def _close(self, batch: Batch, *, is_better: bool) -> None:
        """Never tries a move of one unit again that made nothing better."""
        if not is_better:
            self._closed |= {(move.unit.anchor.name, move.form) for move in batch}

    def _delivers(self, point: Point, found: Point, expected: float) -> bool:
        """Whether the noise went down about as it was expected to, where that was the aim."""
        standing = self.proposals.standing
        if not standing.lacking_db(point.score) or not standing.lacking_db(found.score):
            return True
        before, after = noise_of(point.score), noise_of(found.score)
        floor = max(expected, standing.noise_aim(point.score))
        return math.log(before / after) >= DISAPPOINTING * math.log(before / floor)
