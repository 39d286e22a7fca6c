"""Outlook on positions that were not measured: noise and time as estimated, and the best of them.

What a form costs depends on the forms around it, so that a network is often stuck between two good
ways to run it: each of its kinds would lose by changing alone. So whole policies are looked at
beside the position at hand (everything that can with float results, dynamic, stored, in float, in
integers), and from each of them kinds change one by one as long as that helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import NodeForm
from onnxq.tuning.goal import Aim
from onnxq.tuning.kinds import by_kind
from onnxq.tuning.position import FormMove
from onnxq.tuning.standing import DB_OF_TIME

if TYPE_CHECKING:
    from onnxq.tuning.estimates import Estimates
    from onnxq.tuning.kinds import Alike
    from onnxq.tuning.position import Point, Position
    from onnxq.tuning.standing import Standing
    from onnxq.tuning.units import Unit

TimeOf = Callable[["Position"], "float | None"]
"""Predicted time over float's, without a run; None: no times are known."""
FLOAT_BYTES = 4
"""Bytes of a weight in float; 1 in every other form."""
SWEEPS = 3
"""Times that all kinds are gone through, at most: two are the rule."""
POLICIES = (
    NodeForm.FLOAT,
    NodeForm.FLOAT_RESULT,
    NodeForm.DYNAMIC,
    NodeForm.STORED,
    NodeForm.INTEGER,
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
        wants_quiet = goal.objective is Aim.ACCURACY or math.isinf(self._allowed)
        if wants_quiet:
            return Expected(lacks, 10 * math.log10(max(noise, 1e-30)) / 100, noise)
        if goal.objective is Aim.SIZE:
            return Expected(lacks, share_of_bytes(position), noise)
        db = -10 * math.log10(max(noise, 1e-30))
        return Expected(lacks, (time or 0.0) - self.standing.spare(db), noise)

    @property
    def _allowed(self) -> float:
        """Noise up to which accuracy is enough."""
        score, standing = self.point.score, self.standing
        if standing.lacking_db(score):
            return standing.noise_aim(score)
        if not standing.bounds_accuracy and standing.lacking_time(score):
            return math.inf
        return max(standing.noise_allowed(score), self.estimates.total(self.point.position))

    def best(self, closed: set[tuple[str, NodeForm]]) -> Position:
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
        return best

    def _swept(
        self, position: Position, kinds: Sequence[Alike], closed: set[tuple[str, NodeForm]]
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


def _policy(position: Position, form: NodeForm, closed: set[tuple[str, NodeForm]]) -> Position:
    """The position in which each unit has the form, where it can and has weights; else float."""

    def chosen(unit: Unit) -> NodeForm:
        fits = form in unit.forms and (unit.weights > 0 or form is NodeForm.INTEGER)
        return form if fits and (unit.anchor.name, form) not in closed else NodeForm.FLOAT

    return position.moved(FormMove(unit, chosen(unit)) for unit in position.units)


def share_of_bytes(position: Position) -> float:
    """Bytes of the weights of units, over those in float."""
    every = FLOAT_BYTES * sum(unit.weights for unit in position.units)
    held = sum(held_bytes(unit, position.form(unit)) for unit in position.units)
    return held / max(every, 1)


def held_bytes(unit: Unit, form: NodeForm) -> int:
    """Bytes of the weights of a unit in that form."""
    return unit.weights * (FLOAT_BYTES if form is NodeForm.FLOAT else 1)
