"""Proposals of a search: changes of groups that should do together, from estimates alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import NodeForm
from onnxq.tuning.scoring.objective_function import TIME_ERROR
from onnxq.tuning.search.candidate import PrecisionChange
from onnxq.tuning.search.change_costs import (
    bytes_alone,
    options_of,
    share_of_bytes,
    times_alone,
    times_with_their_layer_type,
)
from onnxq.tuning.search.estimator import Estimator

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from onnxq.tuning.scoring.objective_function import ObjectiveFunction
    from onnxq.tuning.search.candidate import MeasuredCandidate
    from onnxq.tuning.search.change_costs import Costs, TimeOf
    from onnxq.tuning.search.noise_estimates import NoiseEstimates
    from onnxq.tuning.search.quantization_groups import QuantizationGroup

Batch = tuple[PrecisionChange, ...]
"""Changes that are measured together, those that promise most first."""

LEAST_GAIN = 0.02
"""Share of the noise that a batch has to take away to be worth a run: a tenth of a decibel, an
eighth of what other samples change."""
LEAST_SAVING = TIME_ERROR / 3
"""Share of float's time, or of its weights, that a batch has to save to be worth a run: what whole
runs tell apart with the two batches that may follow."""
LEAST_COST = 0.002
"""Share of float's time that stands for less, a fifteenth of what whole runs tell apart: ratios of
gain to nothing would order changes by the noise of their times."""
LEAST_DB = 0.1
"""Decibels that a candidate has to lack less, to be worth a run: as LEAST_GAIN."""


@dataclass(frozen=True)
class Proposals:
    """Proposals of changes from any point.

    Attributes:
        objective: what is wanted.
        estimates: of the noise of each group.
        time_of: predicts times.
    """

    objective: ObjectiveFunction
    estimates: NoiseEstimates
    time_of: TimeOf

    def batch(self, point: MeasuredCandidate, closed: Iterable[tuple[str, NodeForm]]) -> Batch:
        """Changes to be measured next; empty: none is worth a run.

        Args:
            point: that they start from.
            closed: (anchor, form) of changes that were tried alone, for nothing.
        """
        score, goal = point.score, self.objective.goal
        shut = set(closed)
        options = options_of(point.candidate, shut)
        if batch := self._afresh(point, shut):
            return batch
        if self.objective.missing_db(score) > 0:
            aim = self.estimates.sum_for(self.objective.target_noise(score))
            return self._quieter(point, options, aim, math.inf)
        if self.objective.excess_time(score) > 0:
            return self._faster(point, options, goal.max_time or 0.0)
        if goal.objective is Objective.ACCURACY:
            return self._quieter(point, options, 0.0, goal.max_time or math.inf)
        if goal.objective is Objective.SIZE:
            return self._saving(point, bytes_alone(point.candidate, options), math.inf)
        return self._faster(point, options, 0.0)

    def into_float(
        self, point: MeasuredCandidate, closed: Container[tuple[str, NodeForm]]
    ) -> Batch:
        """Changes of groups into float, those with the most noise for their time first.

        Args:
            point: that they start from.
            closed: (anchor, form) of changes that are left out.
        """
        options = [m for m in options_of(point.candidate, closed) if m.form is NodeForm.FLOAT]
        return self._quieter(point, options, 0.0, math.inf)

    def back(self, point: MeasuredCandidate, closed: Container[tuple[str, NodeForm]]) -> Batch:
        """A change of each group towards the objective, those with the least noise for it first.

        Args:
            point: that they start from.
            closed: (anchor, form) of changes that are left out.
        """
        options = options_of(point.candidate, closed)
        if self.objective.goal.objective is Objective.SIZE:
            costs = bytes_alone(point.candidate, options)
        elif self.time_of(point.candidate) is not None:
            costs = times_alone(point.candidate, options, self.time_of)
        else:
            return ()
        taken: dict[QuantizationGroup, PrecisionChange] = {}
        for change, _ in self._by_saving(point, costs):
            taken.setdefault(change.group, change)
        return tuple(taken.values())

    def is_saving(self, point: MeasuredCandidate, batch: Batch) -> bool:
        """Whether a batch should save time, or bytes, that are worth a run."""
        is_size = self.objective.goal.objective is Objective.SIZE
        share_of = share_of_bytes if is_size else self.time_of
        now, then = map(share_of, (point.candidate, point.candidate.with_changes(batch)))
        return now is not None and then is not None and then <= now - LEAST_SAVING

    def probe(self, point: MeasuredCandidate, probed: Container[str]) -> Batch:
        """A change that tells the noise of one group, where what is best depends on it.

        Args:
            point: that it starts from, which keeps its bounds.
            probed: anchors of groups that were.
        """
        goal = self.objective.goal
        bounded = goal.objective is Objective.ACCURACY and goal.max_time is not None
        if not bounded or self.objective.violation_db(point.score):
            return ()
        estimates, candidate = self.estimates, point.candidate
        noise = {
            u: estimates.of(u, u.lowest_precision)
            for u in candidate.groups
            if u.anchor.name not in probed
        }
        loudest = max(noise, key=lambda group: noise[group], default=None)
        if loudest is None or noise[loudest] < LEAST_GAIN * estimates.total(candidate):
            return ()
        is_float = candidate.form(loudest) is NodeForm.FLOAT
        return (PrecisionChange(loudest, loudest.lowest_precision if is_float else NodeForm.FLOAT),)

    def _quieter(
        self, point: MeasuredCandidate, options: list[PrecisionChange], aim: float, most_time: float
    ) -> Batch:
        """Changes down to a noise within a time, those with the most noise for their time first."""
        costs = times_alone(point.candidate, options, self.time_of)
        gains = {change: self.estimates.gain(point.candidate, change) for change in options}
        useful = [change for change in options if gains[change] > 0]
        useful.sort(key=lambda change: -gains[change] / max(costs[change], LEAST_COST))
        taken: dict[QuantizationGroup, PrecisionChange] = {}
        begun = noise = self.estimates.total(point.candidate)
        time = point.score.time_ratio or 0.0
        for change in useful:
            before = taken.get(
                change.group
            )  # a form with less noise may follow one that costs less
            gain = gains[change] - (gains[before] if before else 0.0)
            cost = costs[change] - (costs[before] if before else 0.0)
            if noise <= aim or gain <= 0 or (cost > 0 and time + cost > most_time):
                continue
            taken[change.group] = change
            noise, time = noise - gain, time + cost
        return tuple(taken.values()) if noise < begun * (1 - LEAST_GAIN) else ()

    def _faster(
        self, point: MeasuredCandidate, options: list[PrecisionChange], aim: float
    ) -> Batch:
        """Changes down to a time, those that save most for the noise that they add first."""
        now = self.time_of(point.candidate)
        if now is None:
            return ()
        alone = times_alone(point.candidate, options, self.time_of)
        together = times_with_their_layer_type(point.candidate, options, self.time_of)
        for costs in ({m: min(alone[m], together[m]) for m in options}, alone):
            batch = self._saving(point, costs, now - aim)
            then = self.time_of(point.candidate.with_changes(batch))
            if batch and then is not None and then <= now - LEAST_SAVING:
                return batch
        return ()

    def _saving(self, point: MeasuredCandidate, costs: Costs, enough: float) -> Batch:
        """Changes that save most for the noise that they add, until that is enough."""
        noise = self.estimates.total(point.candidate)
        allowed = max(self.objective.noise_allowed(point.score), noise)
        if not self.objective.bounds_accuracy and self.objective.excess_time(point.score):
            allowed = math.inf
        allowed = self.estimates.sum_for(allowed)
        taken: dict[QuantizationGroup, PrecisionChange] = {}
        saved = 0.0
        for change, added in self._by_saving(point, costs):
            if change.group in taken or saved >= enough or noise + added > allowed:
                continue
            taken[change.group] = change
            noise, saved = noise + added, saved - costs[change]
        return tuple(taken.values()) if saved >= LEAST_SAVING else ()

    def _by_saving(
        self, point: MeasuredCandidate, costs: Costs
    ) -> list[tuple[PrecisionChange, float]]:
        """Changes that save something, with the noise that each adds; the best trade first."""
        least = 1e-6 * self.estimates.total(point.candidate)
        added = {change: -self.estimates.gain(point.candidate, change) for change in costs}
        useful = [change for change, cost in costs.items() if cost < 0]
        useful.sort(key=lambda change: costs[change] / max(added[change], least))
        return [(change, added[change]) for change in useful]

    def _afresh(self, point: MeasuredCandidate, closed: set[tuple[str, NodeForm]]) -> Batch:
        """Changes to the candidate of the best estimator, where that promises enough."""
        estimator = Estimator(point, self.objective, self.estimates, self.time_of)
        now, best = estimator.expected(point.candidate), estimator.best(closed)
        then = estimator.expected(best)
        saves = now.value - then.value >= LEAST_SAVING
        if now.violation_db - then.violation_db < LEAST_DB and not (
            then.violation_db <= now.violation_db and saves
        ):
            return ()
        with_changes = [
            group for group in best.groups if best.form(group) is not point.candidate.form(group)
        ]
        changes = [PrecisionChange(group, best.form(group)) for group in with_changes]
        added = {change: -self.estimates.gain(point.candidate, change) for change in changes}
        return tuple(sorted(changes, key=lambda change: added[change]))
