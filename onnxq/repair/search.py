"""Repair of what `quantize` made, where its verdict is low: a short search, as `tune` has.

    slower than float          integers go back (onnxq.repair.slower)

    verdict below the floor, on any output or part of one
        weights of few bits get more             they cost no time
        groups back to float, cheapest first     by tune, on rounded weights alone
        quantized anew with what was found, on all samples and with the PTQ algorithms that the
        qconfig names, kept if it is better

The search begins no model any more after twice the time of all that came before it, and tries so
many at most; two of them at most are quantized anew. What it ends with is said in the verdict's
notes, better or not. A model without any integers is no repair: what was quantized stays then, with
its warning.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.checking.check import Repair
from onnxq.checking.runnable import Made, timed_in_pairs
from onnxq.checking.static_job import Observe, StaticJob, carry_out
from onnxq.core.atomic import temporary_folder
from onnxq.errors import OnnxqError, counted, first_line
from onnxq.operator import Float
from onnxq.operator.reasons import LeftByRepair, LeftByRequest
from onnxq.ort.target_here import saturates_here_alone
from onnxq.qconfig import Choice, QConfigMapping
from onnxq.qconfig.weight_bits import BY_BITS
from onnxq.quantized.verdict import LEAST_SPEEDUP, Verdict
from onnxq.repair.slower import static_worth_it
from onnxq.report.progress import Step, Watching, unwatched
from onnxq.samples import Samples, open_samples
from onnxq.samples.excerpt import HANDFUL, Excerpt
from onnxq.static.plan import Plan
from onnxq.static.prepare import prepare
from onnxq.static.prepared import ModelSource, Prepared
from onnxq.static.statistics import Statistics
from onnxq.times import Costs, costs_of
from onnxq.tuning.tables import Milestone
from onnxq.tuning.tuned import Tuned

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.tuning.scoring.goal import Goal

MOST_RUNS = 16
"""Models that the search runs over its samples; a bisection takes some ten."""
LEAST_SECONDS = 5.0
TIMES_SO_FAR = 2.0
"""Wall time of the search: at most so many times the CPU time of all before it; the default."""
LEAST_SHARE = 0.5
"""Least time of a search, as a share of what the first model took; chosen, not measured."""
BETTER_DB = 0.5
"""Less is no repair; chosen, not measured."""
MARGIN_DB = 2.0
"""Above the floor, wanted where the verdict has other samples; chosen, not measured."""


class ObservedOnce:
    """Calibration that is run once for all who observe the same tensors alike."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._seen: list[tuple[Prepared, tuple[Statistics, Excerpt]]] = []

    def __call__(self, prepared: Prepared, excerpt: Excerpt) -> tuple[Statistics, Excerpt]:
        """The statistics and the excerpt, of now or of then."""
        for other, found in self._seen:
            is_alike = other.observed == prepared.observed and other.probed == prepared.probed
            if is_alike and other.model_hash == prepared.model_hash:
                return found
        self._seen.append((prepared, self._observe(prepared, excerpt)))
        return self._seen[-1][1]


def carry_out_and_repair(
    wanted: Repair | None,
    model: ModelSource,
    job: StaticJob,
    observe: Observe,
    watching: Watching = unwatched,
) -> tuple[Made[Plan], Statistics]:
    """A model and its statistics, repaired where its verdict is low."""
    if wanted is None or not job.check.runs:
        made, statistics = carry_out(job, observe)
        return timed_in_pairs(job.prepared.model, made, job.work.spent_s), statistics
    bound, observe = job.check.min_sqnr_db, ObservedOnce(observe)
    if job.samples is not None:
        job = replace(job, check=replace(job.check, min_sqnr_db=None))
    made, statistics = carry_out(job, observe)
    while _is_low(made, wanted) and (again := _with_more_bits(wanted, job, model)):
        before_db, job = _likeness_db(made), again
        made, statistics = carry_out(job, observe)
        bits = f"weights of {job.prepared.qconfig.weight_bits} bits"
        note = f"repaired, {before_db:.1f} dB -> {_likeness_db(made):.1f} dB: {bits}"
        made = replace(made, plan=replace(made.plan, notes=(*made.plan.notes, note)))
    made = static_worth_it(job, made, observe)
    verdict = made.model.verdict
    if verdict is not None and _is_low(made, wanted):
        found = _repaired(wanted, model, job, observe, verdict, watching)
        if isinstance(found, str):
            note = f"not repaired: {found}"
            made.model.attach(replace(verdict, notes=(*verdict.notes, note)))
        else:
            repaired, statistics = found
            made = static_worth_it(job, repaired, observe)
    if bound is not None and made.model.verdict is not None:
        made.model.verdict.check(bound)
    return made, statistics


def _is_low(made: Made[Plan], wanted: Repair) -> bool:
    verdict = made.model.verdict
    return verdict is not None and verdict.likeness_db < wanted.floor_db


def _with_more_bits(wanted: Repair, job: StaticJob, model: ModelSource) -> StaticJob | None:
    """The job with more bits for weights of fewer than 8; None: a size or little time is given."""
    if (wanted.max_seconds or math.inf) < job.work.spent_s * LEAST_SHARE:
        return None
    asked = job.prepared.qconfig
    more = min((bits for bits in BY_BITS if bits > asked.weight_bits), default=None)
    if more is None or job.size is not None or saturates_here_alone(job.prepared.target):
        return None
    return replace(job, prepared=_prepared(model, job.prepared, asked.set_weight_bits(more)))


def _why_never(job: StaticJob) -> str | None:
    """Why no search is begun, in words; None: one may be."""
    if job.samples is None:
        return "a search wants the samples themselves, not statistics of them"
    if job.samples.is_one_shot:
        return "the samples come only once. Give a file, or arrays"
    if job.size is not None:
        return "the size that was asked for leaves no more bits"
    if job.prepared.qconfig.choice is Choice.ALL_INTEGERS:
        return "all integers were asked for"
    if saturates_here_alone(job.prepared.target):
        return f"this machine does not add as {job.prepared.target} does: judge the model there"
    return None


def _repaired(
    wanted: Repair,
    model: ModelSource,
    job: StaticJob,
    observe: Observe,
    verdict: Verdict,
    watching: Watching,
) -> tuple[Made[Plan], Statistics] | str:
    """A better model and its statistics, or why there is none, in words."""
    why = _why_never(job)
    if why is not None:
        return why
    spent_s = job.work.spent_s
    seconds = wanted.max_seconds
    if seconds is None:
        seconds = max(TIMES_SO_FAR * spent_s, LEAST_SECONDS)
    elif seconds < spent_s * LEAST_SHARE:
        return f"one more model takes about {spent_s:.0f} s, more than is allowed"
    try:
        with watching("repair") as progress:
            found = _searched(wanted, model, job, seconds, verdict, progress)
    except OnnxqError as error:
        return first_line(error)
    why = "no model with integers is better; onnxq report shows the layers that cost most"
    tried: list[tuple[Milestone, Made[Plan], Statistics]] = []
    for step in _worth_trying(found):
        qconfig = replace(step.qconfig, improve=job.prepared.qconfig.improve)
        again = replace(job, prepared=_prepared(model, job.prepared, qconfig))
        try:
            tried.append((step, *carry_out(again, observe)))
        except OnnxqError as error:
            why = first_line(error)
            continue
        if _likeness_db(tried[-1][1]) >= wanted.floor_db:
            break
    if not tried:
        return why
    step, made, statistics = max(tried, key=lambda each: _likeness_db(each[1]))
    made = replace(made, plan=_with_reasons(made.plan, job.prepared))
    then = made.model.verdict
    before, after = verdict.likeness_db, _likeness_db(made)
    if then is None or not after > before + BETTER_DB:  # -inf: what cannot be compared
        return f"of {found.spent.runs:.0f} models that were tried none is better"
    nodes = f"{then.integer_nodes} nodes in integers, {verdict.integer_nodes} before"
    note = f"repaired, {before:.1f} dB -> {after:.1f} dB: {nodes}"
    changes = f"the repair: {counted(step.changes)}"
    # the answer on a terminal leaves out what is long and comes last
    made.model.attach(replace(then, notes=(note, *then.notes, changes)))
    return made, statistics


def _likeness_db(made: Made[Plan]) -> float:
    verdict = made.model.verdict
    return -math.inf if verdict is None else verdict.likeness_db


def _worth_trying(found: Tuned) -> list[Milestone]:
    """Steps with integers that are worth quantizing anew, at most two, in this order.

    The chosen one alone, where it is faster than float. Else the most accurate of those that are,
    then the chosen one: weights that are stored as integers alone keep more accuracy and gain no
    time, and a search that ended early has seen the faster one on few samples.
    """
    from onnxq.tuning.tuned import is_all_float

    steps = [step for step in found.steps[1:] if not is_all_float(step.qconfig)]
    faster = [s for s in steps if s.score.time_ratio and s.score.time_ratio * LEAST_SPEEDUP < 1]
    nearest = max(steps, key=_worst_db, default=None)
    chosen = next((step for step in steps if step.qconfig == found.qconfig), nearest)
    first = chosen if chosen in faster else max(faster, key=_worst_db, default=None)
    return list({step.changes: step for step in (first, chosen) if step is not None}.values())


def _worst_db(step: Milestone) -> float:
    return step.score.worst_db


def _with_reasons(made: Plan, asked: Prepared) -> Plan:
    """The plan, in which nodes that the search put into float say so, and not that a user did."""

    def is_by_repair(name: str, reason: object) -> bool:
        if not isinstance(reason, LeftByRequest):
            return False
        before = asked.decisions.get(name)
        return not (isinstance(before, Float) and isinstance(before.reason, LeftByRequest))

    decisions = {
        name: Float(LeftByRepair())
        if isinstance(decision, Float) and is_by_repair(name, decision.reason)
        else decision
        for name, decision in made.decisions.items()
    }
    precisions = {
        name: replace(chosen, reason=LeftByRepair())
        if is_by_repair(name, chosen.reason)
        else chosen
        for name, chosen in made.precisions.items()
    }
    return replace(made, decisions=decisions, precisions=precisions)


def _searched(
    wanted: Repair,
    model: ModelSource,
    job: StaticJob,
    seconds: float,
    verdict: Verdict,
    progress: Step,
) -> Tuned:
    """Result of a search by `tune` within the bounds.

    Where integers of outputs changed, their share is bounded as the floor says (`likeness_db`).
    Samples to check on, on which the verdict was low, choose the bound, once: it is higher by what
    the search's own show too much of the model that is to be repaired.
    """
    from onnxq.tuning.scoring.goal import Goal  # few runs need the search

    margin_db = MARGIN_DB if job.check.unseen is None else 0.0
    goal = Goal(
        min_sqnr_db=wanted.floor_db + margin_db if verdict.worst_db < math.inf else None,
        max_runs=MOST_RUNS,
        max_seconds=seconds,
        improve=(),
    )
    if any(o.agreement is not None and o.likeness_db < wanted.floor_db for o in verdict.outputs):
        most_changed = 10 ** (-wanted.floor_db / 10) / 2
        goal = replace(goal, metric="top1", max_drop=most_changed)
    with temporary_folder() as folder:
        journal = folder / "journal"
        if goal.min_sqnr_db is not None and job.check.unseen is not None:
            begun = _tuned(model, job, replace(goal, max_runs=1), progress, journal)
            more_db = _short_db(begun, goal.min_sqnr_db)
            left_s = max(seconds - begun.spent.cpu_s, LEAST_SECONDS)
            goal = replace(goal, min_sqnr_db=goal.min_sqnr_db + more_db, max_seconds=left_s)
        return _tuned(model, job, goal, progress, journal)


def _short_db(found: Tuned, bound_db: float) -> float:
    """Decibels that a model lacks on samples held apart though the search's show enough; else 0."""
    shown_db, apart_db = found.score.worst_db, found.held_apart.score.worst_db
    return shown_db - apart_db if shown_db >= bound_db > apart_db else 0.0


def _tuned(model: ModelSource, job: StaticJob, goal: Goal, progress: Step, journal: Path) -> Tuned:
    """Result of one search, on samples that `_searched_on` chooses."""
    from onnxq.tuning.tune import HELD_APART, tune  # few runs need the search

    prepared = job.prepared
    assert job.samples is not None
    with warnings.catch_warnings():  # the verdict says what became of it
        warnings.simplefilter("ignore")
        return tune(
            model,
            _searched_on(job.samples, prepared),
            goal=goal,
            qconfig=prepared.qconfig.set_improve(()),
            target=prepared.target,
            format=job.file_format,
            check=HELD_APART if job.check.unseen is None else job.check,
            quantized_input=prepared.quantized_input,
            quantized_output=prepared.quantized_output,
            costs=_costs_given(prepared) or costs_of(prepared.target.name),
            journal=journal,
            progress=progress,
        )


def _searched_on(samples: Samples, prepared: Prepared) -> Samples:
    """A sixteenth of the samples, 16 at least, and all where these are few batches.

    Each model of the search is calibrated and run on them; what is found is calibrated on all
    again. None of them is held apart for the verdict, as some of the calibration's excerpt are.
    """
    excerpt = prepared.new_excerpt()
    for batch in open_samples(samples, prepared.inputs):
        excerpt.offer(batch)
    chosen = excerpt.chosen()
    return replace(samples, source=chosen) if len(chosen) >= HANDFUL else samples


def _costs_given(prepared: Prepared) -> Costs | None:
    """The table of times that the user gave; None: none."""
    return prepared.costs if isinstance(prepared.costs, Costs) else None


def _prepared(model: ModelSource, prepared: Prepared, mapping: QConfigMapping) -> Prepared:
    """The same request with what was found."""
    return prepare(
        model,
        mapping,
        prepared.target,
        prepared.feedback,
        quantized_input=prepared.quantized_input,
        quantized_output=prepared.quantized_output,
        costs=_costs_given(prepared),
    )
