"""Search for a quantized model that reaches a goal: measured on this machine, then checked.

samples        of the search: calibrated on, and compared on; others are held apart
times          of each node in each precision, taken first and alone
sensitivity    error of each layer type alone, then of parts of the most sensitive ones
local search   changes in batches, each of them measured
check          of the best on the samples held apart
"""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from onnxq.checking.check import Check
from onnxq.core.stopwatch import Stopwatch
from onnxq.errors import QConfigError, kind_of
from onnxq.qconfig import QConfigMapping
from onnxq.qconfig.names import excluding
from onnxq.qconfig.quantized_input import Asked
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.samples import Samples
from onnxq.samples.excerpt import EVERY
from onnxq.samples.state import check_feedback
from onnxq.static.arguments import check_costs, check_path, check_progress, mapping_from
from onnxq.static.prepare import backend_of
from onnxq.static.prepared import ModelSource
from onnxq.targets import Target
from onnxq.times import Costs
from onnxq.times.model_times import TimeModel
from onnxq.tuning.evaluation.evaluations import Evaluations
from onnxq.tuning.evaluation.evaluator import Evaluator, baseline_of
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.metric import Metric
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.scoring.subject import Subject, Wishes
from onnxq.tuning.scoring.tuning_samples import open_tuning_samples
from onnxq.tuning.search.candidate import MeasuredCandidate, changes_of_the_whole
from onnxq.tuning.search.left_in_float import left_in_float
from onnxq.tuning.search.pareto_candidates import Clock, front_of
from onnxq.tuning.search.quantization_groups import by_layer_type
from onnxq.tuning.search.search import Search, Step, open_journal, times_in
from onnxq.tuning.tables import Milestone
from onnxq.tuning.tuned import Checked, MissedGoalWarning, Spent, Tuned

DEFAULT_GOAL = Goal()
HELD_APART = Check(hold_apart=EVERY)


def tune(
    model: ModelSource,
    samples: object,
    *,
    goal: Goal = DEFAULT_GOAL,
    qconfig: QConfigMapping | str | Path | None = None,
    target: str | Target | None = None,
    format: str = "qdq",
    check: object = HELD_APART,
    quantized_input: Mapping[str, Asked] | None = None,
    quantized_output: Sequence[str] = (),
    costs: Costs | None = None,
    journal: str | Path | None = None,
    executor: Executor | None = None,
    progress: Step | None = None,
    exclude: Collection[str] = (),
) -> Tuned:
    """The quantized model that reaches a goal, or comes nearest to it, with all that was measured.

    Args:
        model: path, ModelProto or onnx_ir.Model of the float model; it is not changed.
        samples: file, folder, {input name: array of all samples}, batches of that form, or
            onnxq.Samples; labels may be among the arrays.
        goal: bounds, the metric, an objective within them, and what the search may use and spend.
        qconfig: where the search begins, or the path of a YAML file that says it; what it names
            stays as it is. None: onnxq's default.
        target: the machine that the result is for.
        format: "qdq" or "qoperator".
        check: samples that the goal is checked on; or onnxq.Check(hold_apart=n), for one batch of
            `samples` in so many, which chooses nothing.
        quantized_input: as of `quantize`.
        quantized_output: as of `quantize`.
        costs: times of nodes, from `onnxq costs`; None: they are measured on this machine.
        journal: file that keeps what was measured, from which a search that was stopped goes on.
        executor: runs candidates beside each other; the result is the same. None: this process.
        progress: is told of each run.
        exclude: names or globs of nodes that stay in float.
    Raises:
        QConfigError: an option is not known, or does not fit the goal.
        CalibrationError: unusable samples, too few to hold some apart, or another journal.
        ModelError: the model cannot be read, or ONNX Runtime does not run it.
    Warns:
        MissedGoalWarning: the goal was not reached; `missed` of the result says what of it.
        UserWarning: an output of what was chosen is far from the float model's.
    """
    given = Samples.of(samples)
    checked_on = _check_of_goal(check, given)
    wishes = Wishes(target, given.feedback, quantized_input, quantized_output, costs, format)
    by = _metric_of(goal)
    named = mapping_from(qconfig, backend_of(target))
    check_costs(costs)
    check_path("journal", journal)
    check_progress(progress)
    subject = Subject.of(model, wishes)
    check_feedback(subject.canonical.model, wishes.feedback)
    search, apart = open_tuning_samples(given, checked_on, subject.inputs)
    asked = subject.default if named is None else named
    asked = replace(asked, nodes=excluding(asked.nodes, exclude))
    asked = asked.set_improve(asked.algorithms)  # what it measures is all that its qconfig names
    work = Stopwatch()
    baseline = baseline_of(subject, search, by)
    by, layout = by.with_layout_of(baseline.beside())
    pass_s = work.spent_s
    with open_journal(journal, subject, search, by) as kept:
        evaluator = Evaluator(subject, search, baseline, by)
        times = times_in(kept, evaluator, costs)
        evaluator.ratio = TimeModel(times, subject.prepared(subject.default).model).ratio
        clock = Clock(evaluator, kept) if costs is None else None
        told = progress or (lambda _done, _most: None)
        run = Search(Evaluations(evaluator, kept), goal, executor, told, clock)
        begun = run.begin(asked, changes_of_the_whole(asked))
        groups = begun.start.groups
        sensitivity = run.sensitivity(asked.set_improve(begun.improve), groups)
        found = run.run(begun, sensitivity)
        best, score = found.best.candidate.mapping, found.best.score
        beside = baseline_of(subject, apart, by)
        checked = Evaluations(evaluator.on(beside), kept)(best)
    if score.time_ratio is not None and score.time_range is not None:  # of the search's whole runs
        checked = checked.timed(score.time_ratio, score.time_range)
    made = evaluator.finished(best, apart)
    tuned = Tuned(
        model=_timed(made.model, score, is_by_clock=clock is not None),
        qconfig=best,
        score=score,
        held_apart=Checked(apart.where, beside.metric, checked),
        float_metric=baseline.metric,
        metric_layout=layout,
        missed=_missed(goal, (score, baseline.metric), (checked, beside.metric)),
        steps=tuple(map(_milestone, found.points)),
        front=tuple(map(_milestone, front_of(found.points))),
        sensitivity=sensitivity,
        times=times,
        goal=goal,
        layer_types=tuple(layers.node_group for layers in by_layer_type(groups)),
        labels=tuple(name for name in search.batches[0] if name not in search.inputs),
        refused=found.refused,
        left_in_float=left_in_float(found.best, begun.search.proposals),
        why=found.why,
        spent=Spent(run.runs, work.spent_s, pass_s),
        plan=made.plan,
    )
    _warn(tuned)
    return tuned


def _warn(tuned: Tuned) -> None:
    """Warns the caller of `tune` of what is wrong with the result."""
    verdict = tuned.model.verdict
    if verdict is not None and verdict.low:
        warnings.warn(verdict.warning, UserWarning, stacklevel=3)
    if tuned.missed:
        message = f"the goal was not reached: {'; '.join(tuned.missed)}"
        warnings.warn(message, MissedGoalWarning, stacklevel=3)


def _check_of_goal(check: object, samples: Samples) -> Check:
    """The check of the goal, on samples that choose nothing."""
    checked = Check.of(check, samples)
    if checked.unseen is None and checked.hold_apart is None:
        raise QConfigError(
            "check: a goal is checked on samples that choose nothing. Give some, or "
            "onnxq.Check(hold_apart=4) for every fourth batch."
        )
    if checked.min_sqnr_db is not None:
        raise QConfigError("check: the bounds of a search are its goal's: Goal(min_sqnr_db=...).")
    if checked.unseen is None:
        return checked
    return replace(checked, samples=checked.unseen.with_feedback(samples.feedback))


def _metric_of(goal: Goal) -> Metric:
    """The metric of a goal that fits its bounds."""
    if not isinstance(goal, Goal):
        raise QConfigError(
            f"goal is {kind_of(goal)}; wanted onnxq.Goal(...), such as Goal(min_sqnr_db=30)."
        )
    metric = goal.by
    if goal.max_drop is not None and metric.float_value == math.inf:
        raise QConfigError(
            f"goal: a drop is a loss of the metric, and {metric.name} of the float model is "
            "infinite. Name a metric (Goal(metric=function), on the command line --metric "
            "FILE.py:function), or bound the SQNR (min_sqnr_db, on the command line --min-sqnr)."
        )
    return metric


def _timed(model: QuantizedModel, score: Score, *, is_by_clock: bool) -> QuantizedModel:
    """The model, with the time of whole runs that it was chosen by in its verdict.

    With none where a table of another machine tells the times: this one's say nothing beside them.
    """
    if model.verdict is not None and not is_by_clock:
        model.attach(replace(model.verdict, speedup=None))
    elif model.verdict is not None and score.time_range is not None and score.time_ratio:
        model.attach(replace(model.verdict, speedup=1 / score.time_ratio))
    return model


def _milestone(point: MeasuredCandidate) -> Milestone:
    return Milestone(point.candidate.words, point.score, point.candidate.mapping)


def _missed(goal: Goal, *scores: tuple[Score, float]) -> tuple[str, ...]:
    """Bounds that a score does not keep, the samples named."""
    places = ("on the samples of the search", "on the samples held apart")
    return tuple(
        f"{words} {place}"
        for place, (score, float_metric) in zip(places, scores, strict=True)
        for words in goal.missed(score, float_metric)
    )
