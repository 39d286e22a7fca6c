"""Estimates of what a move changes: noise from the sensitivity, corrected by each measurement.

Noises of units add up, but moves take away less than their sum says: an activation stays rounded as
long as one of its neighbours is in codes, which was counted with each of them, and those that look
best are those whose noise was guessed too high (or, left in codes, too low). So

    noise(position) = met * (sum / sum where it was met) ** delivered

where `delivered` is the share of the decibels that batches brought, of those that the sums had
promised: 1 at first. What was measured is met, and all in float has no noise, whatever it is. What
it does not explain is put down to the units of the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.tuning.judging.standing import noise_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnxq.tuning.judging.score import Score
    from onnxq.tuning.moving.position import FormMove, Point, Position
    from onnxq.tuning.moving.units import Unit

NOISE_OF_FORM = {
    Precision.INT8: 1.0,
    Precision.INT8_FLOAT_OUTPUT: 0.3,
    Precision.DYNAMIC_INT8: 0.25,
    Precision.WEIGHT_ONLY: 0.1,
    Precision.FLOAT: 0.0,
}
"""Noise of a unit over that with codes on both sides, before anything is measured: results that are
not rounded give 5.7 dB on models/transformer, dynamic ranges 6 (scripts/bench_defaults.md); weights
of 8 bits alone are left in the others."""
MOST_CORRECTION = 30.0
"""Factor by which one measurement may correct an estimate: more is the neighbours' doing."""
LEAST_DELIVERED = 0.25
"""Share of the promised decibels that the next batch is expected to bring at least: behind one that
brought nothing, other units than its own are chosen."""
LEAST_SHARE = 1e-9
"""Noise of a unit whose error is too small to be measured, as a share of the numbers' power."""


@dataclass
class Estimates:
    """Noise of each unit, which measurements correct.

    Attributes:
        noise: anchor -> noise at the worst output with the unit alone in its form with the most
            integers.
    """

    noise: dict[str, float]
    _scale: float = field(default=1.0)  # of all, so that the last measurement is met
    _met: float = field(default=0.0)  # that measurement
    _promised: float = field(default=0.0)  # by sums of units, of all batches: logarithms
    _brought: float = field(default=0.0)

    def of(self, unit: Unit, form: Precision) -> float:
        """Noise of a unit in that form."""
        alone = max(self.noise.get(unit.anchor.name, 0.0), LEAST_SHARE)
        relative = NOISE_OF_FORM[form] / NOISE_OF_FORM[unit.coded]
        return self._scale * alone * relative

    def total(self, position: Position) -> float:
        """Noise of a model; errors that do not know of each other add up."""
        found = self._sum(position)
        return self._met * math.pow(found / self._met, self._delivered) if self._met else found

    def sum_for(self, noise: float) -> float:
        """Sum over units at which a model is expected to have that noise: `total`, reversed."""
        return self._met * math.pow(noise / self._met, 1 / self._delivered) if self._met else noise

    @property
    def _delivered(self) -> float:
        if not self._promised:
            return 1.0
        return min(max(self._brought / self._promised, LEAST_DELIVERED), 1.0)

    def _sum(self, position: Position) -> float:
        return sum(self.of(unit, position.form(unit)) for unit in position.units)

    def gain(self, position: Position, move: FormMove) -> float:
        """Noise that a move takes away; negative where it adds some."""
        return self.of(move.unit, position.form(move.unit)) - self.of(move.unit, move.form)

    def meet(self, position: Position, score: Score) -> None:
        """Scales all estimates so that they give what was measured."""
        total = self._sum(position)
        if total > 0:
            self._met = max(noise_of(score), LEAST_SHARE)
            self._scale *= self._met / total

    def learn(self, point: Point, moves: Sequence[FormMove], after: Score) -> None:
        """Learns what share of the promised decibels a batch of moves brought.

        Args:
            point: where the batch began, whose score `meet` has met.
            moves: the batch, of which nothing was measured before.
            after: score with them.
        """
        now = self._sum(point.position)
        then = max(self._sum(point.position.moved(moves)), LEAST_SHARE)
        if then < now:
            promised = math.log(now / then)
            brought = math.log(noise_of(point.score) / noise_of(after))
            self._promised += promised
            self._brought += min(max(brought, 0.0), promised)

    def correct(self, point: Point, moves: Sequence[FormMove], after: Score) -> None:
        """Corrects the units of a batch of moves by what the batch changed.

        Args:
            point: where the batch began, whose score `meet` has met.
            moves: the batch.
            after: score with them.
        """
        begun = point.position
        expected = self.total(begun) - self.total(begun.moved(moves))
        found = noise_of(point.score) - noise_of(after)
        if expected == 0:
            return
        factor = max(found / expected, 1 / MOST_CORRECTION)
        self._multiply((move.unit for move in moves), min(factor, MOST_CORRECTION))

    def _multiply(self, units: Iterable[Unit], factor: float) -> None:
        for unit in units:
            name = unit.anchor.name
            self.noise[name] = max(self.noise.get(name, 0.0), LEAST_SHARE) * factor


def spread(costs: Mapping[str, float], groups: Mapping[str, Sequence[Unit]]) -> dict[str, float]:
    """Noise of each unit, where that of groups was measured: equal parts.

    A unit of none that was measured has the mean of the others: nobody knows it to be quiet.

    Args:
        costs: name of a group -> noise; of a part of another group, too, which then counts.
        groups: name of a group -> units; parts behind what they are parts of.
    """
    found: dict[str, float] = {}
    for name, units in groups.items():
        if name in costs:
            found |= {unit.anchor.name: costs[name] / len(units) for unit in units}
    if not found:
        return found
    mean = sum(found.values()) / len(found)
    every = [unit.anchor.name for units in groups.values() for unit in units]
    return dict.fromkeys(every, mean) | found
