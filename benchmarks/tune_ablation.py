"""Worth of each stage of `tune`'s search: the search without it, on drawn networks and on models.

    python -m benchmarks tune_ablation                 # drawn networks
    python -m benchmarks tune_ablation lcnet resnet20  # models of benchmarks/tune.py

No clock is read, so that a loaded machine gives the same rows. Times of a model come from the
bundled table of costs; its "whole runs" take longer than these say, and each reading is off by
chance, as a clock's are. Every model of the search is quantized and run once: all ways to search
share a journal. Drawn networks have four layer types in five precisions, conversions between
these, and activations that two neighbours round; their sensitivity is measured as that of a model.

A row is a stage that is switched off: networks whose objective is worse by more than 0.5% without
it, those in which it is better, the mean of the change, and the runs that the search takes.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import click
import numpy as np

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Row, Table
from benchmarks.tune import AT_ONCE, NAMES, TRAINED, problem
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping, onnxq_default_qconfig
from onnxq.times.model_times import TimeModel
from onnxq.times.table import costs_of
from onnxq.times.timed_runs import WholeTime
from onnxq.tuning.evaluation.evaluations import Evaluations, key_of
from onnxq.tuning.evaluation.evaluator import Evaluator, baseline_of
from onnxq.tuning.scoring.metric import as_metric
from onnxq.tuning.scoring.objective_function import ObjectiveFunction, noise_of
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.scoring.subject import Subject, Wishes
from onnxq.tuning.scoring.tuning_samples import open_tuning_samples
from onnxq.tuning.search import (
    candidate,
    local_search,
    pareto_candidates,
    proposals,
    quantization_groups,
    search,
)
from onnxq.tuning.search.candidate import (
    Candidate,
    changes_of_the_whole,
    precision_in,
    with_precision,
)
from onnxq.tuning.search.local_search import LocalSearch
from onnxq.tuning.search.noise_estimates import NoiseEstimates, spread
from onnxq.tuning.search.pareto_candidates import Clock, float_candidates
from onnxq.tuning.search.proposals import Proposals
from onnxq.tuning.search.quantization_groups import (
    Member,
    QuantizationGroup,
    by_layer_type,
    sensitive_parts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnxq.tuning.search.quantization_groups import Layers

DRAWN = Table(
    "drawn",
    {"goal": "", "without": "", "worse": "", "better": "", "mean": "+.1%", "runs": ".1f"},
    keys=2,
)
MODELS = Table(
    "models",
    {
        **{"model": "", "goal": "", "value": ".3f", "runs": ".1f", "worse without": ""},
        **{"better without": "", "fewer runs without": ""},
    },
    keys=2,
)
NETWORKS, LAYERS, ANSWERS = 10, 14, 800
WORSE, LEAST_RUNS = 0.005, 1.0
"""Share of the objective, and runs, below which a change is none."""
TARGET = "x86-avx2"
"""Target whose arithmetic every x86 machine computes."""
TYPES = {
    "Conv": (Precision.FLOAT, Precision.INT8, Precision.WEIGHT_ONLY),
    "depthwise Conv": (Precision.FLOAT, Precision.INT8, Precision.WEIGHT_ONLY),
    "MatMul": (
        Precision.FLOAT,
        Precision.INT8_FLOAT_OUTPUT,
        Precision.DYNAMIC_INT8,
        Precision.WEIGHT_ONLY,
        Precision.INT8,
    ),
    "Add": (Precision.FLOAT, Precision.INT8),
}
IN_INTEGERS = (Precision.INT8, Precision.INT8_FLOAT_OUTPUT)
GOALS = {
    "a bound in dB": onnxq.Goal(min_sqnr_db=35),
    "a bound on a metric": onnxq.Goal(max_drop=0.005),
    "accurate within a time": onnxq.Goal(max_time=0.7, objective=Objective.ACCURACY),
    "small": onnxq.Goal(min_sqnr_db=35, objective=Objective.SIZE),
}
MODEL_GOALS = {
    "30 dB": onnxq.Goal(min_sqnr_db=30),
    "not slower": onnxq.Goal(max_time=1),
    "accurate in 0.6": onnxq.Goal(max_time=0.6, objective=Objective.ACCURACY),
    "a point": onnxq.Goal(max_drop=0.01),
}
"""Goals of models; the last one of those with labels alone."""
ROWS = 8
"""Samples to search on; images with labels are as many as two batches have."""
SLOWER, READING = 0.08, 0.008
"""Time of whole runs beyond their prediction, as a share of what integers save, and the standard
deviation of one reading."""
Stage = tuple[object, str, object]
STAGES: dict[str, Sequence[Stage]] = {
    "all stages": (),
    "sweeps": [(proposals.Estimator, "_swept", lambda _self, candidate, *_: candidate)],
    "knapsack": [(proposals.Estimator, "_by_knapsack", lambda *_: iter(()))],
    "times of changes as a layer type": [
        (proposals, "times_with_their_layer_type", proposals.times_alone)
    ],
    "learning from batches": [(NoiseEstimates, "learn", lambda *_: None)],
    "correction of estimates": [(NoiseEstimates, "correct", lambda *_: None)],
    "probes": [(LocalSearch, "_probe", lambda *_: None)],
    "repair": [(local_search, "repaired", lambda *_: None)],
    "bisection of what costs an answer": [(local_search, "back", lambda point, *_: point)],
    "parts of layer types": [(quantization_groups, "MOST_PARTS", 0)],
}
OF_MODELS: dict[str, Sequence[Stage]] = {
    **STAGES,
    "other observers": [(candidate, "OTHER_OBSERVERS", ())],
    "the smallest of those in float": [
        (pareto_candidates, "_stored_as_fast", lambda best, *_: best)
    ],
    "all in float, and weights stored, beside": [
        (search, "float_candidates", lambda _: []),
        (search, "stored_candidate", lambda _: []),
    ],
    "PTQ algorithms first": [(LocalSearch, "_wants_accuracy", lambda *_: False)],
}
"""Stages by name, each with what stands in its place while it is off."""


@dataclass(frozen=True)
class Ended:
    """End of one search.

    Attributes:
        lacks: of the goal, in decibels.
        value: that is to be least: of a time or a size, the share of float's; of noise, its dB.
        runs: that it took.
    """

    lacks: float
    value: float
    runs: float

    def worse_by(self, other: Ended) -> float:
        """Share by which the other one is better; inf where that one alone keeps the goal."""
        if (self.lacks > 0) != (other.lacks > 0):
            return math.inf if self.lacks > 0 else -math.inf
        return (self.value - other.value) / max(abs(other.value), 0.01)


class Drawn:
    """A network drawn at random.

    Args:
        seed: of all that is drawn.
    """

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        types = list(TYPES)[: int(draw.integers(2, 5))]
        floats = 10 ** draw.uniform(-1.5, 0, LAYERS)
        floats /= floats.sum()
        ratio = {each: draw.uniform(0.3, 1.3) for each in types}
        noise = {each: 10 ** draw.uniform(-5.5, -3) for each in types}
        self._time: list[dict[Precision, float]] = []
        self._noise: list[dict[Precision, float]] = []
        groups = []
        for i, took in enumerate(floats.tolist()):
            kind = types[int(draw.integers(len(types)))]
            weights = int(draw.integers(100, 20_000))
            anchor = Member(f"/layer{i:02}", kind)
            groups.append(QuantizationGroup(anchor, (), kind, TYPES[kind], weights))
            share = ratio[kind] * draw.uniform(0.8, 1.25)
            own = noise[kind] * 10 ** draw.normal(0, 0.5)
            more = (0.0, 0.0, draw.uniform(0.02, 0.15), draw.uniform(0.05, 0.3))
            spoilt = 10 ** draw.normal(0, 0.3)
            self._time.append(
                {
                    Precision.FLOAT: took,
                    Precision.WEIGHT_ONLY: took,
                    Precision.INT8: took * share,
                    Precision.INT8_FLOAT_OUTPUT: took * (share + more[2]),
                    Precision.DYNAMIC_INT8: took * (share + more[3]),
                }
            )
            self._noise.append(
                {
                    Precision.FLOAT: 0.0,
                    Precision.WEIGHT_ONLY: 0.1 * own * spoilt,
                    Precision.INT8: own,
                    Precision.INT8_FLOAT_OUTPUT: 0.3 * own * spoilt,
                    Precision.DYNAMIC_INT8: 0.25 * own * spoilt,
                }
            )
        self.groups = tuple(groups)
        self._conversion = 0.5 * 10 ** draw.uniform(-2.6, -1.4, LAYERS + 1)
        self._rounded = 10 ** draw.uniform(-5.5, -4, LAYERS - 1)
        self._margins = draw.normal(1.2, 1.0, ANSWERS)
        self._errors = draw.normal(size=(LAYERS, ANSWERS))

    def ratio(self, precisions: Sequence[Precision]) -> float:
        """Time over float's."""
        total = sum(
            times[precision] for times, precision in zip(self._time, precisions, strict=True)
        )
        gives = False
        for cost, precision in zip(self._conversion[:-1], precisions, strict=True):
            total += cost * ((precision in IN_INTEGERS) != gives)
            gives = precision is Precision.INT8
        return float(total + self._conversion[-1] * gives)

    def score(self, precisions: Sequence[Precision], goal: onnxq.Goal) -> Score:
        """Score with these precisions."""
        noises = [
            noise[precision] for noise, precision in zip(self._noise, precisions, strict=True)
        ]
        noise = sum(noises)
        for i, rounded in enumerate(self._rounded):
            noise += rounded * (precisions[i] is Precision.INT8 or precisions[i + 1] in IN_INTEGERS)
        db = -10 * math.log10(noise) if noise else 200.0
        metric = db
        if goal.max_drop is not None:
            spread_of = 4 * np.sqrt(noises)
            metric = float((self._margins + spread_of @ self._errors > 0).mean())
        bytes_of = ((4 if f is Precision.FLOAT else 1) for f in precisions)
        size = sum(g.weights * b for g, b in zip(self.groups, bytes_of, strict=True))
        return Score(metric, {"y": db}, size, self.ratio(precisions))

    def ended(self, goal: onnxq.Goal) -> Ended:
        """The search from all integers, and all in float or stored beside it."""
        mapping = QConfigMapping(onnxq_default_qconfig)
        for group in self.groups:
            mapping = with_precision(mapping, group, group.lowest_precision)
        start = Candidate(mapping, self.groups)

        def scores(mappings: Sequence[QConfigMapping]) -> list[Score]:
            return [self.score([precision_in(m, g) for g in self.groups], goal) for m in mappings]

        floats = self.score([Precision.FLOAT] * LAYERS, goal)
        (begun,) = scores([mapping])
        objective = ObjectiveFunction(goal, floats.metric, noise_of(begun))
        estimates = NoiseEstimates(self._sensitivity(goal))
        proposals = Proposals(
            objective, estimates, lambda at: self.ratio([at.precision(g) for g in self.groups])
        )
        local = LocalSearch(proposals, scores, (), goal.max_runs)
        found = local.run(local.begin([start]))
        beside = float_candidates(start)
        points = [found.best.score, *scores([each.mapping for each in beside])]
        best = min(points, key=objective.order)
        return _ended(objective, best, len(found.points) + len(beside))

    def _sensitivity(self, goal: onnxq.Goal) -> dict[str, float]:
        """Noise of each group, from layer types alone, and from parts of the most sensitive."""
        types = by_layer_type(self.groups)

        def alone(part: Layers) -> float:
            inside = {group.anchor.name for group in part.groups}
            precisions = [
                g.lowest_precision if g.anchor.name in inside else Precision.FLOAT
                for g in self.groups
            ]
            return noise_of(self.score(precisions, goal))

        noise = {each.name: alone(each) for each in types}
        parts = sensitive_parts(types, noise)
        noise |= {each.name: alone(each) for each in parts}
        return spread(noise, {each.name: each.groups for each in (*types, *parts)})


def _ended(objective: ObjectiveFunction, score: Score, runs: float) -> Ended:
    value = objective.value(score)
    if objective.goal.objective is Objective.ACCURACY:
        value = 10 * math.log10(max(value, 1e-20))
    return Ended(objective.violation_db(score), value, runs)


class DrawnClock(Clock):
    """A clock whose readings follow from predictions, and from the mapping that is timed."""

    def times(self, mappings: Sequence[QConfigMapping]) -> list[WholeTime]:
        """Times of whole runs, longer than predicted, each off by chance."""
        return [self._read(mapping) for mapping in mappings]

    def _read(self, mapping: QConfigMapping) -> WholeTime:
        (score,) = Evaluations(self.evaluator, self.journal).all([mapping])
        assert isinstance(score, Score)
        assert score.time_ratio is not None
        digest = hashlib.blake2b(key_of(mapping).encode(), digest_size=8).digest()
        off = np.random.default_rng(int.from_bytes(digest)).normal(0.0, READING)
        ratio = whole_time(score.time_ratio) + float(off)
        return WholeTime(ratio, ratio - 2 * READING, ratio + 2 * READING)


def whole_time(predicted: float) -> float:
    """Time of whole runs that are predicted to take so long."""
    return predicted + SLOWER * max(1.0 - predicted, 0.0)


def searched(name: str, folder: Path, *, whole: bool = False) -> Iterator[tuple[str, str, Ended]]:
    """(goal, stage, the end of its search) of a model of benchmarks/tune.py."""
    table = costs_of("x86-vnni")
    assert table is not None
    given = problem(name, folder)
    wishes = Wishes(TARGET, given.feedback or {}, costs=replace(table, target=TARGET))
    metric, subject = as_metric(given.metric), Subject.of(given.model, wishes)
    samples, _ = open_tuning_samples(
        onnxq.Samples(given.search),
        onnxq.Check.of(given.check or onnxq.Check(hold_apart=4), onnxq.Samples()),
        subject.inputs,
    )
    samples = samples.few(2 * AT_ONCE if name in TRAINED else ROWS)
    baseline = baseline_of(subject, samples, metric)
    asked = default_qconfig_mapping()
    with search.open_journal(None, subject, samples, metric) as journal:
        evaluator = Evaluator(subject, samples, baseline, metric)
        times = search.times_in(journal, evaluator, wishes.costs)
        evaluator.ratio = TimeModel(times, subject.prepared(subject.default).model).ratio
        clock = DrawnClock(evaluator, journal)
        for goal_name, goal in MODEL_GOALS.items():
            if goal.max_drop is not None and name not in TRAINED:
                continue
            for stage, places in ({"all stages": ()} if whole else OF_MODELS).items():
                with _without(places):
                    run = search.Search(
                        Evaluations(evaluator, journal), goal, None, lambda *_: None, clock
                    )
                    begun = run.begin(asked, changes_of_the_whole(asked))
                    sensitivity = run.sensitivity(
                        asked.set_improve(begun.improve), begun.start.groups
                    )
                    found = run.run(begun, sensitivity)
                score = found.best.score
                predicted = score.predicted_time or score.time_ratio or math.inf
                real = replace(score, time_ratio=whole_time(predicted), time_range=None)
                yield goal_name, stage, _ended(_judge(goal, baseline.metric), real, run.runs)


def _judge(goal: onnxq.Goal, float_metric: float) -> ObjectiveFunction:
    return ObjectiveFunction(goal, float_metric)


def _without(places: Sequence[Stage]) -> ExitStack:
    stack = ExitStack()
    for owner, name, other in places:
        stack.enter_context(patch.object(owner, name, other))
    return stack


def cells(found: Sequence[Ended], every: Sequence[Ended]) -> tuple[int, int, float | None, float]:
    """Networks worse and better without a stage, the mean change, and the runs."""
    changes = [end.worse_by(before) for end, before in zip(found, every, strict=True)]
    finite = [change for change in changes if math.isfinite(change)]
    return (
        sum(change > WORSE for change in changes),
        sum(change < -WORSE for change in changes),
        float(np.mean(finite)) if finite else None,
        float(np.mean([end.runs for end in found])),
    )


def drawn_ends(goal: onnxq.Goal, networks: int) -> dict[str, list[Ended]]:
    """Stage that is off -> the ends of the searches of the networks."""
    found: dict[str, list[Ended]] = {}
    for stage, places in STAGES.items():
        with _without(places):
            found[stage] = [Drawn(seed).ended(goal) for seed in range(networks)]
    return found


def row_of(name: str, goal: str, ends: Mapping[str, Ended]) -> Row:
    """The row of a model and a goal, from the ends of the searches without each stage."""
    every = ends["all stages"]
    changes = {stage: end.worse_by(every) for stage, end in ends.items()}
    fewer = {stage: every.runs - end.runs for stage, end in ends.items()}
    return MODELS.row(
        name,
        goal + (" (missed)" if every.lacks > 0 else ""),
        every.value,
        every.runs,
        "; ".join(f"{stage} {c:+.1%}" for stage, c in changes.items() if c > WORSE),
        "; ".join(f"{stage} {c:+.1%}" for stage, c in changes.items() if c < -WORSE),
        "; ".join(f"{stage} {n:.1f}" for stage, n in fewer.items() if n >= LEAST_RUNS),
    )


@benchmark(DRAWN, MODELS, needs=("torch",))
@click.option("--networks", default=NETWORKS, show_default=True, help="that are drawn")
@click.option("--whole", is_flag=True, help="models with all stages on alone")
@with_names(NAMES)
def measure(networks: int, whole: bool, names: Sequence[str]) -> Iterator[Row]:
    """A row for each stage."""
    if not names:
        for goal_name, goal in GOALS.items():
            ends = drawn_ends(goal, networks)
            for stage, found in ends.items():
                yield DRAWN.row(goal_name, stage, *cells(found, ends["all stages"]))
        return
    for name in names:
        by_goal: dict[str, dict[str, Ended]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for goal_name, stage, end in searched(name, Path(folder), whole=whole):
                by_goal.setdefault(goal_name, {})[stage] = end
        for goal_name, of_stage in by_goal.items():
            yield row_of(name, goal_name, of_stage)
