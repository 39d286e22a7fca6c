"""Proposals of a search: changes of groups that should do together, from estimates alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.tuning.scoring.objective_function import TIME_ERROR
from onnxq.tuning.search.candidate import PrecisionChange
from onnxq.tuning.search.change_costs import (
    bytes_alone,
    options_of,
    share_of_bytes,
    times_alone,
)
from onnxq.tuning.search.estimator import Estimator

if TYPE_CHECKING:
    from collections.abc import Container

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

    def into_float(
        self, point: MeasuredCandidate, closed: Container[tuple[str, Precision]]
    ) -> Batch:
        """Changes of groups into float, those with the most noise for their time first.

        Args:
            point: that they start from.
            closed: (anchor, form) of changes that are left out.
        """
        options = [m for m in options_of(point.candidate, closed) if m.form is Precision.FLOAT]
        costs = times_alone(point.candidate, options, self.time_of)
        gains = {change: self.estimates.gain(point.candidate, change) for change in options}
        useful = [change for change in options if gains[change] > 0]
        return tuple(sorted(useful, key=lambda m: -gains[m] / max(costs[m], LEAST_COST)))

    def back(self, point: MeasuredCandidate, closed: Container[tuple[str, Precision]]) -> Batch:
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
        is_float = candidate.form(loudest) is Precision.FLOAT
        return (
            PrecisionChange(loudest, loudest.lowest_precision if is_float else Precision.FLOAT),
        )

    def _by_saving(
        self, point: MeasuredCandidate, costs: Costs
    ) -> list[tuple[PrecisionChange, float]]:
        """Changes that save something, with the noise that each adds; the best trade first."""
        least = 1e-6 * self.estimates.total(point.candidate)
        added = {change: -self.estimates.gain(point.candidate, change) for change in costs}
        useful = [change for change, cost in costs.items() if cost < 0]
        useful.sort(key=lambda change: costs[change] / max(added[change], least))
        return [(change, added[change]) for change in useful]

    def batch(self, point: MeasuredCandidate, closed: Container[tuple[str, Precision]]) -> Batch:
        """Changes to the candidate that is expected to be best; empty: none is worth a run.

        Args:
            point: that they start from.
            closed: (anchor, form) of changes that were tried alone, for nothing.
        """
        estimator = Estimator(point, self.objective, self.estimates, self.time_of)
        now, best = estimator.expected(point.candidate), estimator.best(closed)
        then = estimator.expected(best)
        saves = now.value - then.value >= LEAST_SAVING
        quieter = now.violation_db - then.violation_db >= LEAST_DB
        if not quieter and not (then.violation_db <= now.violation_db and saves):
            return ()
        changes = [
            PrecisionChange(group, best.form(group))
            for group in best.groups
            if best.form(group) is not point.candidate.form(group)
        ]
        added = {change: -self.estimates.gain(point.candidate, change) for change in changes}
        return tuple(sorted(changes, key=lambda change: added[change]))
