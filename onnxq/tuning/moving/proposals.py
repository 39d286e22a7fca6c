"""Proposals of a search: moves of units that should do together, from estimates alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.tuning.judging.goal import Aim
from onnxq.tuning.judging.standing import TIME_ERROR
from onnxq.tuning.moving.move_costs import (
    bytes_alone,
    options_of,
    share_of_bytes,
    times_alone,
    times_with_their_kind,
)
from onnxq.tuning.moving.outlook import Outlook
from onnxq.tuning.moving.position import FormMove

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from onnxq.tuning.judging.standing import Standing
    from onnxq.tuning.moving.estimates import Estimates
    from onnxq.tuning.moving.move_costs import Costs, TimeOf
    from onnxq.tuning.moving.position import Point
    from onnxq.tuning.moving.units import Unit

Batch = tuple[FormMove, ...]
"""Moves that are measured together, those that promise most first."""

LEAST_GAIN = 0.02
"""Share of the noise that a batch has to take away to be worth a run: a tenth of a decibel, an
eighth of what other samples change."""
LEAST_SAVING = TIME_ERROR / 3
"""Share of float's time, or of its weights, that a batch has to save to be worth a run: what whole
runs tell apart with the two batches that may follow."""
LEAST_COST = 0.002
"""Share of float's time that stands for less, a fifteenth of what whole runs tell apart: ratios of
gain to nothing would order moves by the noise of their times."""
LEAST_DB = 0.1
"""Decibels that a position has to lack less, to be worth a run: as LEAST_GAIN."""


@dataclass(frozen=True)
class Proposals:
    """Proposals of moves from any point.

    Attributes:
        standing: what is wanted.
        estimates: of the noise of each unit.
        time_of: predicts times.
    """

    standing: Standing
    estimates: Estimates
    time_of: TimeOf

    def batch(self, point: Point, closed: Iterable[tuple[str, Precision]]) -> Batch:
        """Moves to be measured next; empty: none is worth a run.

        Args:
            point: that they start from.
            closed: (anchor, form) of moves that were tried alone, for nothing.
        """
        score, goal = point.score, self.standing.goal
        shut = set(closed)
        options = options_of(point.position, shut)
        if batch := self._afresh(point, shut):
            return batch
        if self.standing.lacking_db(score) > 0:
            aim = self.estimates.sum_for(self.standing.noise_aim(score))
            return self._quieter(point, options, aim, math.inf)
        if self.standing.lacking_time(score) > 0:
            return self._faster(point, options, goal.max_time or 0.0)
        if goal.objective is Aim.ACCURACY:
            return self._quieter(point, options, 0.0, goal.max_time or math.inf)
        if goal.objective is Aim.SIZE:
            return self._saving(point, bytes_alone(point.position, options), math.inf)
        return self._faster(point, options, 0.0)

    def free(self, point: Point) -> Batch:
        """Moves that take noise and time away, of a point that lacks accuracy; empty: none do.

        No estimate of noise says that they are wrong, however little it gives of it: in a network
        whose errors do not add up, a node that is next to nothing alone may be much among others.
        """
        is_timed = self.time_of(point.position) is not None
        is_size = self.standing.goal.objective is Aim.SIZE
        if not is_timed or is_size or not self.standing.lacking_db(point.score):
            return ()
        options = options_of(point.position, ())
        costs = times_alone(point.position, options, self.time_of)
        quieter = [m for m in options if self.estimates.gain(point.position, m) > 0]
        taken: dict[Unit, FormMove] = {}
        for move in sorted((m for m in quieter if costs[m] < 0), key=lambda m: costs[m]):
            taken.setdefault(move.unit, move)
        batch = tuple(taken.values())
        return batch if self.is_saving(point, batch) else ()

    def into_float(self, point: Point, closed: Container[tuple[str, Precision]]) -> Batch:
        """Moves of units into float, those with the most noise for their time first.

        Args:
            point: that they start from.
            closed: (anchor, form) of moves that are left out.
        """
        options = [m for m in options_of(point.position, closed) if m.form is Precision.FLOAT]
        return self._quieter(point, options, 0.0, math.inf)

    def back(self, point: Point, closed: Container[tuple[str, Precision]]) -> Batch:
        """A move of each unit towards the objective, those with the least noise for it first.

        Args:
            point: that they start from.
            closed: (anchor, form) of moves that are left out.
        """
        options = options_of(point.position, closed)
        if self.standing.goal.objective is Aim.SIZE:
            costs = bytes_alone(point.position, options)
        elif self.time_of(point.position) is not None:
            costs = times_alone(point.position, options, self.time_of)
        else:
            return ()
        taken: dict[Unit, FormMove] = {}
        for move, _ in self._by_saving(point, costs):
            taken.setdefault(move.unit, move)
        return tuple(taken.values())

    def is_saving(self, point: Point, batch: Batch) -> bool:
        """Whether a batch should save time, or bytes, that are worth a run."""
        is_size = self.standing.goal.objective is Aim.SIZE
        share_of = share_of_bytes if is_size else self.time_of
        now, then = map(share_of, (point.position, point.position.moved(batch)))
        return now is not None and then is not None and then <= now - LEAST_SAVING

    def probe(self, point: Point, probed: Container[str]) -> Batch:
        """A move that tells the noise of one unit, where what is best depends on estimates of it.

        Args:
            point: that it starts from, which keeps its bounds.
            probed: anchors of units that were.
        """
        goal = self.standing.goal
        bounded = goal.objective is Aim.ACCURACY and goal.max_time is not None
        if not bounded or self.standing.lacks(point.score):
            return ()
        estimates, position = self.estimates, point.position
        noise = {u: estimates.of(u, u.coded) for u in position.units if u.anchor.name not in probed}
        loudest = max(noise, key=lambda unit: noise[unit], default=None)
        if loudest is None or noise[loudest] < LEAST_GAIN * estimates.total(position):
            return ()
        is_float = position.form(loudest) is Precision.FLOAT
        return (FormMove(loudest, loudest.coded if is_float else Precision.FLOAT),)

    def _quieter(
        self, point: Point, options: list[FormMove], aim: float, most_time: float
    ) -> Batch:
        """Moves down to a noise, those with the most noise for their time first, within a time."""
        costs = times_alone(point.position, options, self.time_of)
        gains = {move: self.estimates.gain(point.position, move) for move in options}
        useful = [move for move in options if gains[move] > 0]
        useful.sort(key=lambda move: -gains[move] / max(costs[move], LEAST_COST))
        taken: dict[Unit, FormMove] = {}
        begun = noise = self.estimates.total(point.position)
        time = point.score.time_ratio or 0.0
        for move in useful:
            before = taken.get(move.unit)  # a form with less noise may follow one that costs less
            gain = gains[move] - (gains[before] if before else 0.0)
            cost = costs[move] - (costs[before] if before else 0.0)
            if noise <= aim or gain <= 0 or (cost > 0 and time + cost > most_time):
                continue
            taken[move.unit] = move
            noise, time = noise - gain, time + cost
        return tuple(taken.values()) if noise < begun * (1 - LEAST_GAIN) else ()

    def _faster(self, point: Point, options: list[FormMove], aim: float) -> Batch:
        """Moves down to a time, those that save most for the noise that they add first."""
        now = self.time_of(point.position)
        if now is None:
            return ()
        alone = times_alone(point.position, options, self.time_of)
        together = times_with_their_kind(point.position, options, self.time_of)
        for costs in ({m: min(alone[m], together[m]) for m in options}, alone):
            batch = self._saving(point, costs, now - aim)
            then = self.time_of(point.position.moved(batch))
            if batch and then is not None and then <= now - LEAST_SAVING:
                return batch
        return ()

    def _saving(self, point: Point, costs: Costs, enough: float) -> Batch:
        """Moves that save most for the noise that they add, until that is enough."""
        noise = self.estimates.total(point.position)
        allowed = max(self.standing.noise_allowed(point.score), noise)
        if not self.standing.bounds_accuracy and self.standing.lacking_time(point.score):
            allowed = math.inf
        allowed = self.estimates.sum_for(allowed)
        taken: dict[Unit, FormMove] = {}
        saved = 0.0
        for move, added in self._by_saving(point, costs):
            if move.unit in taken or saved >= enough or noise + added > allowed:
                continue
            taken[move.unit] = move
            noise, saved = noise + added, saved - costs[move]
        return tuple(taken.values()) if saved >= LEAST_SAVING else ()

    def _by_saving(self, point: Point, costs: Costs) -> list[tuple[FormMove, float]]:
        """Moves that save something, with the noise that each adds; the best trade first."""
        least = 1e-6 * self.estimates.total(point.position)
        added = {move: -self.estimates.gain(point.position, move) for move in costs}
        useful = [move for move, cost in costs.items() if cost < 0]
        useful.sort(key=lambda move: costs[move] / max(added[move], least))
        return [(move, added[move]) for move in useful]

    def _afresh(self, point: Point, closed: set[tuple[str, Precision]]) -> Batch:
        """Moves to the position of the best outlook, where that promises enough."""
        outlook = Outlook(point, self.standing, self.estimates, self.time_of)
        now, best = outlook.expected(point.position), outlook.best(closed)
        then = outlook.expected(best)
        saves = now.worth - then.worth >= LEAST_SAVING
        if now.lacks - then.lacks < LEAST_DB and not (then.lacks <= now.lacks and saves):
            return ()
        moved = [unit for unit in best.units if best.form(unit) is not point.position.form(unit)]
        moves = [FormMove(unit, best.form(unit)) for unit in moved]
        added = {move: -self.estimates.gain(point.position, move) for move in moves}
        return tuple(sorted(moves, key=lambda move: added[move]))
