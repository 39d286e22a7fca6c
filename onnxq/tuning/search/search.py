"""Stages of a search: PTQ algorithms, sensitivity behind them, local search; and its journal."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from onnxq.core.version import VERSION
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.ort.version import installed
from onnxq.qconfig import Choice, QConfigMapping
from onnxq.targets.speedups import LINEAR_OPS
from onnxq.times import Costs
from onnxq.times.model_times import IN_FLOAT, Times
from onnxq.times.time_model import Precisions
from onnxq.tuning.evaluation.evaluations import REFUSALS, Evaluations, Journal, JournalHead, Refusal
from onnxq.tuning.evaluation.evaluator import Evaluator, precisions_of
from onnxq.tuning.measure_times import measure_times, times_of
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.metric import Metric
from onnxq.tuning.scoring.objective_function import ObjectiveFunction, noise_of
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.scoring.subject import Subject
from onnxq.tuning.scoring.tuning_samples import TuningSamples
from onnxq.tuning.search.candidate import (
    AlgorithmChange,
    Candidate,
    ConfigChange,
    MeasuredCandidate,
    QuantizedAlone,
    WeightsPerTensor,
    is_per_channel,
)
from onnxq.tuning.search.local_search import LocalSearch, SearchResult
from onnxq.tuning.search.noise_estimates import NoiseEstimates, spread
from onnxq.tuning.search.pareto_candidates import Clock, float_candidates, judged, stored_candidate
from onnxq.tuning.search.proposals import Proposals
from onnxq.tuning.search.quantization_groups import (
    Layers,
    QuantizationGroup,
    by_layer_type,
    quantization_groups_of,
    sensitive_parts,
)
from onnxq.tuning.sensitivity import Sensitivity, sensitivity_of

Step = Callable[[int, int | None], None]
"""Called with (runs done, runs at most) after each of them."""
SENSITIVITY_SHARE = 0.5
"""Share of the runs that sensitivity analysis takes at most: the local search needs the others."""
TIMES, HERE = "times", "here"
BY_DEFAULT = "precisions as onnxq chooses them"
"""Name of a second start, where the user asked for another choice of precisions."""


def open_journal(
    path: str | Path | None, subject: Subject, samples: TuningSamples, metric: Metric
) -> Journal:
    """The journal of a search; None: in memory alone."""
    runtime = ".".join(map(str, installed()))
    head = JournalHead(
        subject.model_hash,
        samples.fingerprint,
        f"{metric.name} {metric.fingerprint}".strip(),
        str(subject.wishes),
        f"onnxq {VERSION}, onnxruntime {runtime}",
    )
    return Journal.open(path, head)


def times_in(journal: Journal, evaluator: Evaluator, costs: Costs | None) -> Times:
    """Times of the model: of the journal, else of the table, else measured, alone and now."""
    found = journal.find(TIMES, HERE, Times)
    if found is None:
        found = measure_times(evaluator) if costs is None else times_of(evaluator, costs)
        journal.append(TIMES, HERE, found)
    return found


@dataclass(frozen=True)
class StartedSearch:
    """A search with its start, and the candidate measured there."""

    start: Candidate
    search: LocalSearch
    point: MeasuredCandidate

    @property
    def improve(self) -> tuple[str, ...]:
        """The PTQ algorithms of the point, behind which sensitivity is measured."""
        return self.point.candidate.mapping.algorithms


class Search:
    """Stages of a search, called in this order: begin, sensitivity, run."""

    def __init__(
        self,
        evaluations: Evaluations,
        goal: Goal,
        executor: Executor | None,
        progress: Step,
        clock: Clock | None = None,
    ) -> None:
        self._evaluations, self._goal, self._clock = evaluations, goal, clock
        self._executor, self._progress = executor, progress
        self._begun_s = time.monotonic()
        self._spent = 0.0  # runs of the sensitivity
        self._measured: tuple[Layers, ...] = ()

    @property
    def runs(self) -> float:
        """Runs so far; those on fewer samples by their share."""
        return self._spent + self._evaluations.runs

    def _runs_left(self) -> float:
        """Runs that the time is enough for, by those so far."""
        if self._goal.max_seconds is None or not self.runs:
            return math.inf
        spent_s = time.monotonic() - self._begun_s
        return max(self._goal.max_seconds - spent_s, 0.0) * self.runs / max(spent_s, 1e-9)

    def _is_late(self) -> bool:
        most = self._goal.max_seconds
        return most is not None and time.monotonic() - self._begun_s > most

    def starts(self, asked: QConfigMapping) -> tuple[Candidate, ...]:
        """Starts of the search: the qconfig as asked, and with precisions as onnxq chooses them.

        The second one is left out where it is the first, or where onnxq's choice gives no model.
        """
        quantized = self._evaluations.evaluator.quantized
        plans = {"": quantized(asked).plan}
        if asked.choice is not Choice.BEST:
            with suppress(*REFUSALS):
                plans[BY_DEFAULT] = quantized(asked.set_choice(Choice.BEST)).plan
        groups = self.groups(asked, list(map(precisions_of, plans.values())))
        return tuple(Candidate(plan.qconfig, groups, name=name) for name, plan in plans.items())

    def groups(
        self, asked: QConfigMapping, begun: Sequence[Precisions]
    ) -> tuple[QuantizationGroup, ...]:
        """The quantization groups of nodes that `asked` leaves open: their precision may change."""
        all_integers = asked.without_precisions().set_choice(Choice.ALL_INTEGERS)
        prepared = self._evaluations.evaluator.subject.prepared(all_integers)
        return quantization_groups_of(prepared.model, prepared.decisions, asked, begun)

    def sensitivity(
        self, asked: QConfigMapping, groups: Sequence[QuantizationGroup]
    ) -> Sensitivity:
        """Cost of each layer type alone, and of parts of the most sensitive ones.

        Where there are too few runs for all, layer types with the least weights are not measured.
        """
        layer_types = tuple(
            sorted(by_layer_type(groups), key=lambda layer_type: -layer_type.weights)
        )
        quantized = QuantizedAlone(asked, tuple(groups))
        estimating = self._covering(quantized.together)
        found = self._costs(estimating, quantized, layer_types)
        parts = sensitive_parts(layer_types, {cost.group: cost.noise for cost in found.costs})
        self._measured = (*layer_types, *parts)
        return found.beside(self._costs(estimating, quantized, parts)) if parts else found

    def _covering(self, together: QConfigMapping) -> Evaluations:
        """The evaluations for estimates: parts of `together` share its calibration."""
        evaluations = self._evaluations
        try:
            return Evaluations(evaluations.evaluator.covering(together), evaluations.journal)
        except REFUSALS:  # the sensitivity analysis reports it
            return evaluations

    def _costs(
        self, estimating: Evaluations, quantized: QuantizedAlone, layer_sets: Sequence[Layers]
    ) -> Sensitivity:
        most = min(SENSITIVITY_SHARE * self._goal.max_runs, self._goal.max_runs - 1) - self._spent
        most = min(most, SENSITIVITY_SHARE * self._runs_left())
        alone = {layers.name: quantized.alone(layers) for layers in layer_sets}
        found = sensitivity_of(estimating, alone, self._executor, most)
        self._spent += found.runs
        return found

    def begin(self, asked: QConfigMapping, changes: Sequence[ConfigChange] = ()) -> StartedSearch:
        """The best start, and the PTQ algorithms that help there: they cost no time at run time."""
        starts = self.starts(asked)
        evaluator = self._evaluations.evaluator
        precisions = {
            each.name: precisions_of(evaluator.quantized(each.start).plan) for each in starts
        }
        ratio = evaluator.ratio
        known: dict[tuple[object, ...], float | None] = {}  # proposals ask again

        def time_of(candidate: Candidate) -> float | None:
            key = candidate.name, frozenset(candidate.precisions.items())
            if key not in known:
                begun = precisions[candidate.name]
                known[key] = None if ratio is None else ratio(candidate.node_precisions(begun))
            return known[key]

        score = self._evaluations.all([starts[0].mapping])[0]
        noise_begun = noise_of(score) if isinstance(score, Score) else 0.0
        objective = ObjectiveFunction(self._goal, evaluator.baseline.metric, noise_begun)
        proposals = Proposals(objective, NoiseEstimates({}), time_of)
        kept = len(self._extra_candidates(starts[0], starts[0])) - 1  # without the start
        local = LocalSearch(
            proposals, self._all, changes, max(1, self._goal.max_runs - kept), self._is_late
        )
        algorithms = [
            AlgorithmChange(name) for name in self._goal.improve if name not in asked.algorithms
        ]
        return StartedSearch(starts[0], local, local.begin(starts, algorithms))

    def run(self, begun: StartedSearch, sensitivity: Sensitivity) -> SearchResult:
        """The local search from the start on, with what the sensitivity analysis measured."""
        layer_sets = {layers.name: layers.groups for layers in self._measured}
        noise = spread({cost.group: cost.noise for cost in sensitivity.costs}, layer_sets)
        local = begun.search
        local.proposals.estimates.noise |= noise
        local.runs -= math.ceil(sensitivity.runs)
        found = local.run(begun.point)
        objective = local.proposals.objective
        if self._clock is not None:
            found = judged(found, self._clock, objective)
        return judged(self._with_extra_candidates(begun.start, found), self._clock, objective)

    def _with_extra_candidates(self, start: Candidate, found: SearchResult) -> SearchResult:
        """The search with the extra candidates measured, as far as runs are left."""
        left = max(math.floor(self._goal.max_runs - self.runs), 0)
        candidates = self._extra_candidates(start, found.best.candidate)[:left]
        scores = self._all([candidate.mapping for candidate in candidates])
        beside = [
            MeasuredCandidate(candidate, score)
            for candidate, score in zip(candidates, scores, strict=True)
            if isinstance(score, Score)
        ]
        return replace(found, points=(*found.points, *beside))

    def _extra_candidates(self, start: Candidate, best: Candidate) -> list[Candidate]:
        """Candidates that are measured whatever the estimator predicts of them.

        Where time counts: float candidates, and, where a bound limits the loss, the best one with
        per-tensor weights of its linear layers, whose gain of time the estimator does not know
        (convolutions gain none). Where size counts: weights alone in integers, for the bytes that
        quantized activations and their kernels add are not estimated.
        """
        is_speed = self._goal.objective is Objective.SPEED
        found = stored_candidate(start) if self._goal.objective is Objective.SIZE else []
        if is_speed or self._goal.max_time is not None:
            found = float_candidates(start)
        if self._clock is None:  # predicted times do not depend on scales
            return found
        base = best.mapping.global_qconfig
        is_fine = base is not None and is_per_channel(base.weight_observer)
        linear = by_layer_type(
            group
            for group in best.groups
            if group.anchor.op_type in LINEAR_OPS and best.precision(group) not in IN_FLOAT
        )
        if is_speed and self._goal.bounds_accuracy and is_fine and linear:
            found.append(best.also(*(WeightsPerTensor(each.groups) for each in linear)))
        return found

    def _all(self, mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        found = self._evaluations.all(mappings, self._executor)
        self._progress(math.ceil(self.runs), self._goal.max_runs)
        return found
