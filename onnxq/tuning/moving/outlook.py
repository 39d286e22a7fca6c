"""Outlook on positions that were not measured: noise and time as estimated, and the best of them.

What a form costs depends on the forms around it, so that a network is often stuck between two good
ways to run it: each of its kinds would lose by changing alone. So whole policies are looked at
beside the position at hand (everything that can with float results, dynamic, stored, in float, in
integers), and from each of them kinds change one by one as long as that helps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.core.allotment import Allotment, Option
from onnxq.operator import Precision
from onnxq.tuning.judging.goal import Aim
from onnxq.tuning.judging.standing import DB_OF_TIME
from onnxq.tuning.moving.kinds import by_kind
from onnxq.tuning.moving.move_costs import (
    bytes_alone,
    options_of,
    share_of_bytes,
    times_alone,
    times_with_their_kind,
)
from onnxq.tuning.moving.position import FormMove

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.tuning.judging.standing import Standing
    from onnxq.tuning.moving.estimates import Estimates
    from onnxq.tuning.moving.kinds import Alike
    from onnxq.tuning.moving.move_costs import Costs, TimeOf
    from onnxq.tuning.moving.position import Point, Position
    from onnxq.tuning.moving.units import Unit

TRIES = 3
"""Times that a position within a time is looked for, each within what the last one was late."""
SWEEPS = 3
"""Times that all kinds are gone through, at most: two are the rule."""
POLICIES = (
    Precision.FLOAT,
    Precision.INT8_FLOAT_OUTPUT,
    Precision.DYNAMIC_INT8,
    Precision.WEIGHT_ONLY,
    Precision.INT8,
)
"""Forms of the policies: units that cannot take one stay in float."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expectation of a position.

    Attributes:
        lacks: of the goal, in decibels.
        worth: that the goal wants least: of a time or a size, the share of float's.
        noise: at the worst output.
    """

    lacks: float
    worth: float
    noise: float

    @property
    def order(self) -> tuple[float, float, float]:
        """Key by which expectations are sorted, the best first."""
        return round(self.lacks, 1), round(self.worth, 3), self.noise


@dataclass(frozen=True)
class Outlook:
    """Expectations from one point on.

    Attributes:
        point: that was measured.
        standing: what is wanted.
        estimates: of the noise of each unit.
        time_of: predicts times.
    """

    point: Point
    standing: Standing
    estimates: Estimates
    time_of: TimeOf

    def expected(self, position: Position) -> Expected:
        """Expectation of a position."""
        goal, noise = self.standing.goal, self.estimates.total(position)
        time = self.time_of(position)
        time = self.point.score.time_ratio if time is None else time
        late = max(0.0, (time or 0.0) - (goal.max_time or math.inf))
        lacks = DB_OF_TIME * late
        if noise > self._allowed:
            lacks += 10 * math.log10(noise / self._allowed)
        if self._wants_quiet:
            return Expected(lacks, 10 * math.log10(max(noise, 1e-30)) / 100, noise)
        if goal.objective is Aim.SIZE:
            return Expected(lacks, share_of_bytes(position), noise)
        db = -10 * math.log10(max(noise, 1e-30))
        return Expected(lacks, (time or 0.0) - self.standing.spare(db), noise)

    @property
    def _wants_quiet(self) -> bool:
        """Whether less noise is better, whatever there is."""
        return self.standing.goal.objective is Aim.ACCURACY or math.isinf(self._allowed)

    @property
    def _allowed(self) -> float:
        """Noise up to which accuracy is enough."""
        score, standing = self.point.score, self.standing
        if standing.lacking_db(score):
            return standing.noise_aim(score)
        if not standing.bounds_accuracy and standing.lacking_time(score):
            return math.inf
        return max(standing.noise_allowed(score), self.estimates.total(self.point.position))

    def best(self, closed: set[tuple[str, Precision]]) -> Position:
        """The position that is expected to be best, of those that kinds can reach.

        Args:
            closed: (anchor, form) of moves that were tried alone, for nothing.
        """
        here = self.point.position
        kinds = by_kind(here.units)
        best, order = here, self.expected(here).order
        for begin in (here, *(_policy(here, form, closed) for form in POLICIES)):
            found, expected = self._swept(begin, kinds, closed)
            if expected.order < order:
                best, order = found, expected.order
        for found in (*self._allotted(here, closed), *self._allotted(best, closed)):
            expected = self.expected(found)
            if expected.order < order:
                best, order = found, expected.order
        return best

    def _allotted(
        self, position: Position, closed: set[tuple[str, Precision]]
    ) -> Iterator[Position]:
        """Best positions of all, where moves from that one cost as much together as they do alone.

        They do not, where conversions come and go: one that is late is looked for once more within
        less.
        """
        options = options_of(position, closed)
        if self.standing.goal.objective is Aim.SIZE and not self._wants_quiet:
            yield self._taken(position, options, bytes_alone(position, options), math.inf)
            return
        now, most = self.time_of(position), self.standing.goal.max_time or math.inf
        if now is None:
            return
        for price in (times_alone, times_with_their_kind):
            costs, room = price(position, options, self.time_of), most - now
            for _ in range(TRIES):
                found = self._taken(position, options, costs, room)
                yield found
                late = (self.time_of(found) or 0.0) - most
                if late <= 0:
                    break
                room -= late

    def _taken(
        self, position: Position, options: Sequence[FormMove], costs: Costs, room: float
    ) -> Position:
        """The position with the best moves: the quietest that add so much, else the cheapest."""
        by_unit: dict[Unit, list[FormMove]] = {
            unit: [FormMove(unit, position.form(unit))] for unit in position.units
        }
        for move in options:
            by_unit[move.unit].append(move)
        things = [
            [Option(costs.get(m, 0.0), self.estimates.of(m.unit, m.form)) for m in moves]
            for moves in by_unit.values()
        ]
        allotment = Allotment(things)
        quiet = self._wants_quiet
        allowed = self.estimates.sum_for(self._allowed)
        taken = allotment.quietest(room) if quiet else allotment.cheapest(allowed)
        return position.moved(moves[i] for moves, i in zip(by_unit.values(), taken, strict=True))

    def _swept(
        self, position: Position, kinds: Sequence[Alike], closed: set[tuple[str, Precision]]
    ) -> tuple[Position, Expected]:
        """The position after each kind took the form that is best for it, until none changes."""
        expected = self.expected(position)
        for _ in range(SWEEPS):
            before = position
            for kind in kinds:
                for form in kind.units[0].forms:
                    moves = [
                        FormMove(unit, form)
                        for unit in kind.units
                        if position.form(unit) is not form
                        and (unit.anchor.name, form) not in closed
                    ]
                    then = position.moved(moves)
                    if moves and (found := self.expected(then)).order < expected.order:
                        position, expected = then, found
            if position is before:
                break
        return position, expected


def _policy(position: Position, form: Precision, closed: set[tuple[str, Precision]]) -> Position:
    """The position in which each unit has the form, where it can and has weights; else float.

    Where both are closed, it keeps the form that it has.
    """

    def chosen(unit: Unit) -> Precision:
        fits = form in unit.forms and (unit.weights > 0 or form is Precision.INT8)
        ways = (form, Precision.FLOAT) if fits else (Precision.FLOAT,)
        opened = (way for way in ways if (unit.anchor.name, way) not in closed)
        return next(opened, position.form(unit))

    return position.moved(FormMove(unit, chosen(unit)) for unit in position.units)
