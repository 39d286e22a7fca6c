"""Proposals of a search: changes of groups that should do together, from estimates alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from onnxq.core.knapsack import Knapsack, Option
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.tuning.scoring.objective_function import DB_OF_TIME, TIME_ERROR, ObjectiveFunction
from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.noise_estimates import NoiseEstimates
from onnxq.tuning.search.quantization_groups import Layers, QuantizationGroup, by_layer_type

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
    """Proposals of changes from any point."""

    objective: ObjectiveFunction
    estimates: NoiseEstimates
    time_of: TimeOf

    def back(self, point: MeasuredCandidate, closed: Container[tuple[str, Precision]]) -> Batch:
        """A change of each group towards the objective, those with the least noise for it first."""
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
        """A change that tells the noise of one group, where what is best depends on it."""
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
        is_float = candidate.precision(loudest) is Precision.FLOAT
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
        """Changes to the candidate that is expected to be best; empty: none is worth a run."""
        estimator = Estimator(point, self.objective, self.estimates, self.time_of)
        now, best = estimator.expected(point.candidate), estimator.best(closed)
        then = estimator.expected(best)
        saves = now.value - then.value >= LEAST_SAVING
        quieter = now.violation_db - then.violation_db >= LEAST_DB
        if not quieter and not (then.violation_db <= now.violation_db and saves):
            return ()
        changes = [
            PrecisionChange(group, best.precision(group))
            for group in best.groups
            if best.precision(group) is not point.candidate.precision(group)
        ]
        added = {change: -self.estimates.gain(point.candidate, change) for change in changes}
        return tuple(sorted(changes, key=lambda change: added[change]))


# --- Estimator of candidates that were not measured: their noise, their time, the best of them
#
# What a precision costs depends on those around it. So layer types change one after the other as
# long as that helps, and a knapsack chooses for all groups at once from there.


SWEEPS = 3
"""Times that all layer types are gone through, at most: two are the rule."""
Closed = Container[tuple[str, Precision]]
"""(anchor, precision) of changes that are left out."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expectation of a candidate.

    Attributes:
        value: that the goal wants least: of a time or a size, the share of float's.
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
    """Expectations from one point on."""

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
        """The candidate that is expected to be best, of those that layer types can reach."""
        here = self.point.candidate
        best = self._swept(here, by_layer_type(here.groups), closed)
        order = self.expected(best).order
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
        by_group: dict[QuantizationGroup, list[PrecisionChange]] = {
            group: [PrecisionChange(group, candidate.precision(group))]
            for group in candidate.groups
        }
        for change in options:
            by_group[change.group].append(change)
        things = [
            [Option(costs.get(m, 0.0), self.estimates.of(m.group, m.precision)) for m in changes]
            for changes in by_group.values()
        ]
        knapsack = Knapsack(things)
        quiet = self._wants_quiet
        allowed = self.estimates.sum_for(self._allowed)
        taken = knapsack.least_noise(room) if quiet else knapsack.least_cost(allowed)
        return candidate.with_changes(
            changes[i] for changes, i in zip(by_group.values(), taken, strict=True)
        )

    def _swept(
        self, candidate: Candidate, layer_types: Sequence[Layers], closed: Closed
    ) -> Candidate:
        """The candidate after each layer type took the precision that is best for it."""
        expected = self.expected(candidate)
        for _ in range(SWEEPS):
            before = candidate
            for layer_type in layer_types:
                for precision in layer_type.groups[0].precisions:
                    changes = [
                        PrecisionChange(group, precision)
                        for group in layer_type.groups
                        if candidate.precision(group) is not precision
                        and (group.anchor.name, precision) not in closed
                    ]
                    then = candidate.with_changes(changes)
                    if changes and (found := self.expected(then)).order < expected.order:
                        candidate, expected = then, found
            if candidate is before:
                break
        return candidate


# --- Costs of changes of one group from a candidate: share of float's time, or of its weights


TimeOf = Callable[["Candidate"], "float | None"]
"""Predicted time over float's, without a run; None: no times are known."""
Costs = dict[PrecisionChange, float]
"""Cost of each change; negative where it saves some."""
FLOAT_BYTES = 4
"""Bytes of a weight in float; 1 in every other precision."""


def options_of(
    candidate: Candidate, closed: Container[tuple[str, Precision]]
) -> list[PrecisionChange]:
    """Every change of one group."""
    return [
        PrecisionChange(group, precision)
        for group in candidate.groups
        for precision in group.precisions
        if precision is not candidate.precision(group)
        and (group.anchor.name, precision) not in closed
    ]


def times_alone(candidate: Candidate, options: Sequence[PrecisionChange], time_of: TimeOf) -> Costs:
    """Share of float's time that each change costs by itself."""
    now = time_of(candidate)
    return {
        change: _difference(now, time_of(candidate.with_changes([change]))) for change in options
    }


def times_with_their_layer_type(
    candidate: Candidate, options: Sequence[PrecisionChange], time_of: TimeOf
) -> Costs:
    """The same of changes that all groups of a layer type make at once, without conversions."""
    alike: dict[tuple[str, Precision], list[PrecisionChange]] = {}
    for change in options:
        alike.setdefault((change.group.layer_type, change.precision), []).append(change)
    now = time_of(candidate)
    found: Costs = {}
    for changes in alike.values():
        cost = _difference(now, time_of(candidate.with_changes(changes))) / len(changes)
        found |= dict.fromkeys(changes, cost)
    return found


def bytes_alone(candidate: Candidate, options: Sequence[PrecisionChange]) -> Costs:
    """Share of float's weights that each change costs."""
    every = _float_bytes(candidate)

    def cost(change: PrecisionChange) -> int:
        return held_bytes(change.group, change.precision) - held_bytes(
            change.group, candidate.precision(change.group)
        )

    return {change: cost(change) / every for change in options}


def share_of_bytes(candidate: Candidate) -> float:
    """Bytes of the weights of groups, over those in float."""
    held = sum(held_bytes(group, candidate.precision(group)) for group in candidate.groups)
    return held / _float_bytes(candidate)


def held_bytes(group: QuantizationGroup, precision: Precision) -> int:
    """Bytes of the weights of a group in that precision."""
    return group.weights * (FLOAT_BYTES if precision is Precision.FLOAT else 1)


def _float_bytes(candidate: Candidate) -> int:
    return max(FLOAT_BYTES * sum(group.weights for group in candidate.groups), 1)


def _difference(now: float | None, then: float | None) -> float:
    return 0.0 if now is None or then is None else then - now
