"""Ablation of the search of `tune`: what each of its stages is worth, stage by stage.

    python scripts/bench_tune_ablation.py                      # drawn networks
    python scripts/bench_tune_ablation.py multi_io lcnet       # models of scripts/bench_tune.py

No clock is read, so that a loaded machine prints the same. Times of a model come from the bundled
table of costs, and every model of the search is quantized and run once: all ways to search share a
journal. Drawn networks have layers of four layer types in five forms, conversions between these,
and activations that two neighbours round; their sensitivity is measured as that of a model is.

A row is a stage that is switched off: networks whose objective is worse by more than 0.5% without
it, those in which it is better, the mean of the change, and the runs that the search takes.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import tempfile
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

from onnxq.times.table import costs_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

import onnxq
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping, onnxq_default_qconfig
from onnxq.times.model_times import TimeModel
from onnxq.tuning.evaluation.evaluations import Evaluations
from onnxq.tuning.evaluation.evaluator import Evaluator
from onnxq.tuning.scoring.baseline import baseline_of
from onnxq.tuning.scoring.metric import as_metric
from onnxq.tuning.scoring.objective_function import ObjectiveFunction, noise_of
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.scoring.subject import Subject, Wishes
from onnxq.tuning.scoring.tuning_samples import open_tuning_samples
from onnxq.tuning.search import layers, local_search, proposals, search
from onnxq.tuning.search.candidate import Candidate
from onnxq.tuning.search.config_changes import changes_of_the_whole, form_in, with_form
from onnxq.tuning.search.layers import by_layer_type, dearest_parts
from onnxq.tuning.search.local_search import LocalSearch
from onnxq.tuning.search.noise_estimates import NoiseEstimates, spread
from onnxq.tuning.search.pareto_candidates import float_candidates
from onnxq.tuning.search.proposals import Proposals
from onnxq.tuning.search.quantization_groups import Member, QuantizationGroup
from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnxq.tuning.search.layers import Layers

NETWORKS, LAYERS, ANSWERS = 10, 14, 800
WORSE = 0.005
TARGET = "x86-avx2"
"""Target whose arithmetic every x86 machine computes."""
TYPES = {
    "Conv": (Precision.FLOAT, Precision.INT8, Precision.WEIGHT_ONLY),
    "depthwise Conv": (Precision.FLOAT, Precision.INT8, Precision.WEIGHT_ONLY),
    "MatMul": tuple(proposals.POLICIES),
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
}
Stage = tuple[object, str, object]
STAGES: dict[str, Sequence[Stage]] = {
    "all stages": (),
    "policies": [(proposals, "POLICIES", ())],
    "sweeps": [(proposals.Estimator, "_swept", lambda self, c, *_: (c, self.expected(c)))],
    "knapsack": [(proposals.Estimator, "_by_knapsack", lambda *_: iter(()))],
    "times of changes as a layer type": [
        (proposals, "times_with_their_layer_type", proposals.times_alone)
    ],
    "learning from batches": [(NoiseEstimates, "learn", lambda *_: None)],
    "correction of estimates": [(NoiseEstimates, "correct", lambda *_: None)],
    "probes": [(LocalSearch, "_probe", lambda *_: None)],
    "bisection": [(LocalSearch, "_by_bisection", lambda _self, point: point)],
    "bisection towards float": [(local_search, "nearest_kept", lambda *_: None)],
    "bisection of what costs an answer": [(local_search, "back", lambda point, *_: point)],
    "parts of layer types": [(layers, "MOST_PARTS", 0)],
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

    def ratio(self, forms: Sequence[Precision]) -> float:
        """Time over float's."""
        total = sum(times[form] for times, form in zip(self._time, forms, strict=True))
        gives = False
        for cost, form in zip(self._conversion[:-1], forms, strict=True):
            total += cost * ((form in IN_INTEGERS) != gives)
            gives = form is Precision.INT8
        return float(total + self._conversion[-1] * gives)

    def score(self, forms: Sequence[Precision], goal: onnxq.Goal) -> Score:
        """Score with these forms."""
        noises = [noise[form] for noise, form in zip(self._noise, forms, strict=True)]
        noise = sum(noises)
        for i, rounded in enumerate(self._rounded):
            noise += rounded * (forms[i] is Precision.INT8 or forms[i + 1] in IN_INTEGERS)
        db = -10 * math.log10(noise) if noise else 200.0
        metric = db
        if goal.max_drop is not None:
            spread_of = 4 * np.sqrt(noises)
            metric = float((self._margins + spread_of @ self._errors > 0).mean())
        bytes_of = ((4 if f is Precision.FLOAT else 1) for f in forms)
        size = sum(g.weights * b for g, b in zip(self.groups, bytes_of, strict=True))
        return Score(metric, {"y": db}, size, self.ratio(forms))

    def ended(self, goal: onnxq.Goal) -> Ended:
        """The search from all integers, and all in float or stored beside it."""
        mapping = QConfigMapping(onnxq_default_qconfig)
        for group in self.groups:
            mapping = with_form(mapping, group, group.lowest_precision)
        start = Candidate(mapping, self.groups)

        def scores(mappings: Sequence[QConfigMapping]) -> list[Score]:
            return [self.score([form_in(m, g) for g in self.groups], goal) for m in mappings]

        floats = self.score([Precision.FLOAT] * LAYERS, goal)
        (begun,) = scores([mapping])
        objective = ObjectiveFunction(goal, floats.metric, noise_of(begun))
        estimates = NoiseEstimates(self._sensitivity(goal))
        proposals = Proposals(
            objective, estimates, lambda at: self.ratio([at.form(g) for g in self.groups])
        )
        found = LocalSearch(proposals, scores, (), goal.max_runs).run(start)
        beside = float_candidates(start)
        points = [found.best.score, *scores([each.mapping for each in beside])]
        best = min(points, key=objective.order)
        return _ended(objective, best, len(found.points) + len(beside))

    def _sensitivity(self, goal: onnxq.Goal) -> dict[str, float]:
        """Noise of each group, from layer types alone, and from parts of the most sensitive."""
        types = by_layer_type(self.groups)

        def alone(part: Layers) -> float:
            inside = {group.anchor.name for group in part.groups}
            forms = [
                g.lowest_precision if g.anchor.name in inside else Precision.FLOAT
                for g in self.groups
            ]
            return noise_of(self.score(forms, goal))

        noise = {each.name: alone(each) for each in types}
        parts = dearest_parts(types, noise)
        noise |= {each.name: alone(each) for each in parts}
        return spread(noise, {each.name: each.groups for each in (*types, *parts)})


def _ended(objective: ObjectiveFunction, score: Score, runs: float) -> Ended:
    value = objective.value(score)
    if objective.goal.objective is Objective.ACCURACY:
        value = 10 * math.log10(max(value, 1e-20))
    return Ended(objective.violation_db(score), value, runs)


def searched(name: str, results: Path) -> Iterator[tuple[str, str, Ended]]:
    """(goal, stage, the end of its search) of a model of scripts/bench_tune.py."""
    from benchmarks.tune import problem

    table = costs_of("x86-vnni")
    assert table is not None
    given = problem(name, results)
    wishes = Wishes(TARGET, given.feedback or {}, costs=replace(table, target=TARGET))
    metric, subject = as_metric(given.metric), Subject.of(given.model, wishes)
    samples, _ = open_tuning_samples(
        onnxq.Samples(given.search), onnxq.Check.of(given.check, onnxq.Samples()), subject.inputs
    )
    baseline = baseline_of(subject, samples, metric)
    asked = default_qconfig_mapping()
    with search.open_journal(None, subject, samples, metric, onnxq.Goal()) as journal:
        evaluator = Evaluator(subject, samples, baseline, metric)
        times = search.times_in(journal, evaluator, wishes.costs)
        evaluator.ratio = TimeModel(times, subject.prepared(subject.default).model).ratio
        for goal_name, goal in MODEL_GOALS.items():
            for stage, places in STAGES.items():
                with _without(places):
                    run = search.Search(
                        Evaluations(evaluator, journal), goal, None, lambda *_: None
                    )
                    starts = run.beginnings(asked)
                    sensitivity = run.sensitivity(asked, starts[0].groups)
                    found = run.run(starts, sensitivity, changes_of_the_whole(asked, ("bias",)))
                objective = ObjectiveFunction(goal, baseline.metric)
                yield goal_name, stage, _ended(objective, found.best.score, run.runs)


def _without(places: Sequence[Stage]) -> ExitStack:
    stack = ExitStack()
    for owner, name, other in places:
        stack.enter_context(patch.object(owner, name, other))
    return stack


def rows(ends: Mapping[str, Sequence[Ended]]) -> Iterator[tuple[str, ...]]:
    """A row for each stage: networks worse and better without it, the mean change, the runs."""
    every = ends["all stages"]
    for stage, found in ends.items():
        changes = [end.worse_by(before) for end, before in zip(found, every, strict=True)]
        finite = [change for change in changes if math.isfinite(change)]
        yield (
            stage,
            str(sum(change > WORSE for change in changes)),
            str(sum(change < -WORSE for change in changes)),
            f"{np.mean(finite):+.1%}" if finite else "-",
            f"{np.mean([end.runs for end in found]):.1f}",
        )


def drawn_ends(goal: onnxq.Goal, networks: int) -> dict[str, list[Ended]]:
    """Stage that is off -> the ends of the searches of the networks."""
    found: dict[str, list[Ended]] = {}
    for stage, places in STAGES.items():
        with _without(places):
            found[stage] = [Drawn(seed).ended(goal) for seed in range(networks)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; none: drawn networks")
    parser.add_argument("--networks", type=int, default=NETWORKS, help="that are drawn")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # of torch's exporter
    warnings.simplefilter("ignore")
    print(head("goal", "without", "worse", "better", "mean", "runs"))
    if not args.names:
        for name, goal in GOALS.items():
            for row in rows(drawn_ends(goal, args.networks)):
                print(line(name, *row), flush=True)
        return 0
    found: dict[tuple[str, str], list[Ended]] = {}
    for name in args.names:
        with tempfile.TemporaryDirectory() as folder:
            for goal_name, stage, end in searched(name, Path(folder)):
                found.setdefault((goal_name, stage), []).append(end)
    for goal_name in MODEL_GOALS:
        for row in rows({stage: found[goal_name, stage] for stage in STAGES}):
            print(line(goal_name, *row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
