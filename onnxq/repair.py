"""Repair of what `quantize` made, where its verdict is low: a short search, as `tune` has.

    verdict below the floor, on any output or part of one
        PTQ algorithms that cost nothing at run time    tune's first stage
        groups back to float, cheapest first            tune's others
        quantized anew with what was found, tried on the same samples, kept if it is better

The search takes as long as all that came before it, twice, and so many models at most. What it ends
with is said in the verdict's notes, better or not.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.checking.static_job import carry_out
from onnxq.errors import OnnxqError, first_line
from onnxq.static.prepare import prepare
from onnxq.times import costs_of

if TYPE_CHECKING:
    from onnxq.checking.check import Repair
    from onnxq.checking.runnable import Made
    from onnxq.checking.static_job import Observe, StaticJob
    from onnxq.quantized.verdict import Verdict
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import ModelSource, Prepared
    from onnxq.static.statistics import Statistics
    from onnxq.tuning.tuned import Tuned

MOST_RUNS = 16
"""Models that the search runs over its samples; PTQ algorithms and a bisection take some ten."""
LEAST_SECONDS = 5.0
TIMES_SO_FAR = 2.0
"""Wall time of the search over the CPU time of all that came before it."""
BETTER_DB = 0.5
"""Less is no repair."""


def carry_out_and_repair(
    wanted: Repair | None, model: ModelSource, job: StaticJob, observe: Observe
) -> tuple[Made[Plan], Statistics]:
    """A model and its statistics, repaired where its verdict is low; the bound is on the outcome.

    Args:
        wanted: bounds of the repair; None: none is tried.
        model: the float model, as it was given.
        job: what is wanted.
        observe: runs the calibration, of what is prepared anew, too.
    Raises:
        OnnxqError: as `carry_out`.
    """
    if wanted is None or job.samples is None or not job.check.runs:
        return carry_out(job, observe)
    bound = job.check.min_sqnr_db
    job = replace(job, check=replace(job.check, min_sqnr_db=None))
    made, statistics = carry_out(job, observe)
    verdict = made.model.verdict
    if verdict is not None and verdict.worst_db < wanted.floor_db:
        found = _repaired(wanted, model, job, observe, verdict)
        if isinstance(found, str):
            made.model.attach(replace(verdict, notes=(*verdict.notes, found)))
        else:
            made, statistics = found
    if bound is not None and made.model.verdict is not None:
        made.model.verdict.check(bound)
    return made, statistics


def _repaired(
    wanted: Repair, model: ModelSource, job: StaticJob, observe: Observe, verdict: Verdict
) -> tuple[Made[Plan], Statistics] | str:
    """A better model and its statistics, or why there is none, in words."""
    assert job.samples is not None
    if job.samples.is_one_shot:
        return "not repaired: the samples come only once. Give a file, or arrays"
    try:
        found = _searched(wanted, model, job)
        again = replace(job, prepared=_prepared(model, job.prepared, found))
        made, statistics = carry_out(again, observe)
    except OnnxqError as error:
        return f"not repaired: {first_line(error)}"
    then = made.model.verdict
    before, after = verdict.worst_db, -math.inf if then is None else then.worst_db
    if then is None or not after >= before + BETTER_DB:
        return f"not repaired: of {found.spent.runs:.0f} models that were tried none is better"
    changes = next(step.changes for step in found.steps if step.qconfig == found.qconfig)
    note = f"repaired, {before:.1f} dB -> {after:.1f} dB, by {'; '.join(changes)}"
    made.model.attach(replace(then, notes=(*then.notes, note)))
    return made, statistics


def _searched(wanted: Repair, model: ModelSource, job: StaticJob) -> Tuned:
    """Result of a search by `tune` within the bounds."""
    from onnxq.tuning.scoring.goal import Goal  # few runs need the search
    from onnxq.tuning.tune import tune

    seconds = wanted.max_seconds
    if seconds is None:
        seconds = max(TIMES_SO_FAR * job.work.spent_s, LEAST_SECONDS)
    goal = Goal(min_sqnr_db=wanted.floor_db, max_runs=MOST_RUNS, max_seconds=seconds)
    prepared = job.prepared
    with warnings.catch_warnings():  # the verdict says what became of it
        warnings.simplefilter("ignore")
        return tune(
            model,
            job.samples,
            goal=goal,
            qconfig=prepared.qconfig,
            target=prepared.target,
            format=job.file_format,
            quantized_input=prepared.quantized_input,
            quantized_output=prepared.quantized_output,
            costs=prepared.costs or costs_of(prepared.target.name),
        )


def _prepared(model: ModelSource, prepared: Prepared, found: Tuned) -> Prepared:
    """The same request with what was found."""
    return prepare(
        model,
        found.qconfig,
        prepared.target,
        prepared.feedback,
        quantized_input=prepared.quantized_input,
        quantized_output=prepared.quantized_output,
        costs=prepared.costs,
    )
