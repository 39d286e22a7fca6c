"""Estimator of candidates that were not measured: their noise, their time, the best of them.

What a form costs depends on the forms around it, so that a network is often stuck between two good
ways to run it: each of its layer types would lose by changing alone. So whole policies are looked
at beside the candidate at hand (everything that can with float results, dynamic, stored, in float,
in integers), and from each of them layer types change one by one as long as that helps.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.core.knapsack import Knapsack, Option
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import NodeForm
from onnxq.tuning.scoring.objective_function import DB_OF_TIME
from onnxq.tuning.search.candidate import PrecisionChange
from onnxq.tuning.search.change_costs import (
    bytes_alone,
    options_of,
    share_of_bytes,
    times_alone,
    times_with_their_layer_type,
)
from onnxq.tuning.search.layers import by_layer_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.tuning.scoring.objective_function import ObjectiveFunction
    from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate
    from onnxq.tuning.search.change_costs import Costs, TimeOf
    from onnxq.tuning.search.layers import Layers
    from onnxq.tuning.search.noise_estimates import NoiseEstimates
    from onnxq.tuning.search.quantization_groups import QuantizationGroup

SWEEPS = 3
"""Times that all layer types are gone through, at most: two are the rule."""
POLICIES = (
    NodeForm.FLOAT,
    NodeForm.FLOAT_RESULT,
    NodeForm.DYNAMIC,
    NodeForm.STORED,
    NodeForm.INTEGER,
)
"""Forms of the policies: groups that cannot take one stay in float."""


Closed = Container[tuple[str, NodeForm]]
"""(anchor, form) of changes that are left out."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expectation of a candidate.

    Attributes:
        violation_db: of the goal, in decibels.
        value: that the goal wants least: of a time or a size, the share of float's.
        noise: at the worst output.
    """

    violation_db: float
    value: float
    noise: float

    @property
    def order(self) -> tuple[float, float, float]:
        """Key by which expectations are sorted, the best first."""
        return round(self.violation_db, 1), round(self.value, 3), self.noise


@dataclass(frozen=True)
class Estimator:
    """Expectations from one point on.

    Attributes:
        point: that was measured.
        objective: what is wanted.
        estimates: of the noise of each group.
        time_of: predicts times.
    """

    point: MeasuredCandidate
    objective: ObjectiveFunction
    estimates: NoiseEstimates
    time_of: TimeOf

    def expected(self, candidate: Candidate) -> Expected:
        """Expectation of a candidate."""
        goal, noise = self.objective.goal, self.estimates.total(candidate)
        time = self.time_of(candidate)
        time = self.point.score.time_ratio if time is None else time
        late = max(0.0, (time or 0.0) - (goal.max_time or math.inf))
        violation_db = DB_OF_TIME * late
        if noise > self._allowed:
            violation_db += 10 * math.log10(noise / self._allowed)
        if self._wants_quiet:
            return Expected(violation_db, 10 * math.log10(max(noise, 1e-30)) / 100, noise)
        if goal.objective is Objective.SIZE:
            return Expected(violation_db, share_of_bytes(candidate), noise)
        db = -10 * math.log10(max(noise, 1e-30))
        return Expected(violation_db, (time or 0.0) - self.objective.spare(db), noise)

    @property
    def _wants_quiet(self) -> bool:
        """Whether less noise is better, whatever there is."""
        return self.objective.goal.objective is Objective.ACCURACY or math.isinf(self._allowed)

    @property
    def _allowed(self) -> float:
        """Noise up to which accuracy is enough."""
        score, objective = self.point.score, self.objective
        if objective.missing_db(score):
            return objective.target_noise(score)
        if not objective.bounds_accuracy and objective.excess_time(score):
            return math.inf
        return max(objective.noise_allowed(score), self.estimates.total(self.point.candidate))

    def best(self, closed: Closed) -> Candidate:
        """The candidate that is expected to be best, of those that layer types can reach.

        Args:
            closed: (anchor, form) of changes that were tried alone, for nothing.
        """
        here = self.point.candidate
        layer_types = by_layer_type(here.groups)
        best, order = here, self.expected(here).order
        for begin in (here, *(_policy(here, form, closed) for form in POLICIES)):
            found, expected = self._swept(begin, layer_types, closed)
            if expected.order < order:
                best, order = found, expected.order
        for found in (*self._by_knapsack(here, closed), *self._by_knapsack(best, closed)):
            expected = self.expected(found)
            if expected.order < order:
                best, order = found, expected.order
        return best

    def _by_knapsack(self, candidate: Candidate, closed: Closed) -> Iterator[Candidate]:
        """Best candidates, if costs of changes from that one add up: alone, and as a layer type.

        Conversions on both sides hide what a layer saves alone, where its neighbours change too.
        """
        options = options_of(candidate, closed)
        if self.objective.goal.objective is Objective.SIZE and not self._wants_quiet:
            yield self._taken(candidate, options, bytes_alone(candidate, options), math.inf)
            return
        now, most = self.time_of(candidate), self.objective.goal.max_time or math.inf
        if now is None:
            return
        for price in (times_alone, times_with_their_layer_type):
            costs = price(candidate, options, self.time_of)
            yield self._taken(candidate, options, costs, most - now)

    def _taken(
        self, candidate: Candidate, options: Sequence[PrecisionChange], costs: Costs, room: float
    ) -> Candidate:
        """The candidate with the best changes: the quietest that add so much, else the cheapest."""
        by_unit: dict[QuantizationGroup, list[PrecisionChange]] = {
            group: [PrecisionChange(group, candidate.form(group))] for group in candidate.groups
        }
        for change in options:
            by_unit[change.group].append(change)
        things = [
            [Option(costs.get(m, 0.0), self.estimates.of(m.group, m.form)) for m in changes]
            for changes in by_unit.values()
        ]
        knapsack = Knapsack(things)
        quiet = self._wants_quiet
        allowed = self.estimates.sum_for(self._allowed)
        taken = knapsack.least_noise(room) if quiet else knapsack.least_cost(allowed)
        return candidate.with_changes(
            changes[i] for changes, i in zip(by_unit.values(), taken, strict=True)
        )

    def _swept(
        self,
        candidate: Candidate,
        layer_types: Sequence[Layers],
        closed: Closed,
    ) -> tuple[Candidate, Expected]:
        """The candidate after each layer type took the form that is best for it."""
        expected = self.expected(candidate)
        for _ in range(SWEEPS):
            before = candidate
            for layer_type in layer_types:
                for form in layer_type.groups[0].forms:
                    changes = [
                        PrecisionChange(group, form)
                        for group in layer_type.groups
                        if candidate.form(group) is not form
                        and (group.anchor.name, form) not in closed
                    ]
                    then = candidate.with_changes(changes)
                    if changes and (found := self.expected(then)).order < expected.order:
                        candidate, expected = then, found
            if candidate is before:
                break
        return candidate, expected


def _policy(candidate: Candidate, form: NodeForm, closed: Closed) -> Candidate:
    """The candidate in which each group has the form, where it can and has weights; else float.

    Where both are closed, it keeps the form that it has.
    """

    def chosen(group: QuantizationGroup) -> NodeForm:
        fits = form in group.forms and (group.weights > 0 or form is NodeForm.INTEGER)
        ways = (form, NodeForm.FLOAT) if fits else (NodeForm.FLOAT,)
        opened = (way for way in ways if (group.anchor.name, way) not in closed)
        return next(opened, candidate.form(group))

    return candidate.with_changes(
        PrecisionChange(group, chosen(group)) for group in candidate.groups
    )
