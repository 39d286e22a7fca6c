"""Static quantization of a prepared model as one job: calibrated, planned, rewritten, tried."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from onnxq.checking.check import Check
from onnxq.checking.runnable import Made
from onnxq.checking.validation import Validation
from onnxq.checking.with_verdict import make_static, static_validation
from onnxq.core.stopwatch import Stopwatch
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import CalibrationError
from onnxq.qdq.qoperator import check_format
from onnxq.quantized.verdict import InputSource
from onnxq.samples import Samples, open_samples
from onnxq.samples.excerpt import Excerpt
from onnxq.samples.ignored import check_ignored
from onnxq.static.observed_range import plan_as_targeted
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.static.statistics import Statistics
from onnxq.targets.reduce_range import ReduceRange
from onnxq.weights.algorithm import Improved
from onnxq.weights.carry_out import check_samples, improve_model, improve_weights
from onnxq.weights.judgement import in_smaller_batches
from onnxq.weights.size_bits import with_size

Observe = Callable[["Prepared", "Excerpt"], tuple["Statistics", "Excerpt"]]
"""Gives the statistics of what was prepared, and an excerpt of their samples: the one that it gets,
or another."""


@dataclass(frozen=True, slots=True)
class StaticJob:
    """Wishes about the quantized form of a prepared model.

    Attributes:
        check: what the result is tried on, and the bound that it keeps there.
        samples: those of the calibration, where a plan or an algorithm looks at them again; None:
            none are left.
        work: CPU time since the work began.
        size: of the file, over that of the float model; None: weights have the qconfig's bits.
        apart: samples that no algorithm fits, to try the result on where the check names none.
    """

    prepared: Prepared
    file_format: str
    check: Check = Check.CALIBRATION
    samples: Samples | None = None
    objective: Objective = Objective.SPEED
    work: Stopwatch = field(default_factory=Stopwatch)
    size: float | None = None
    apart: Samples | None = None


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the samples, of which some may be held apart from algorithms, or from everything.

    Attributes:
        observed: the ranges come from these.
        fitted: algorithms look at these.
        apart: the others of those observed, to try the result on; None: there are none.
        check: on samples that nothing saw, where some were named or are to be held apart.
    """

    observed: Samples
    fitted: Samples
    apart: Samples | None
    check: Check


def shares_of(samples: Samples, check: Check, prepared: Prepared) -> Shares:
    """The shares of the samples: where an algorithm fits some, the result is tried on others.

    Ranges alone fit little, two numbers of a tensor of thousands, and few samples less cost them
    decibels. So they come from all samples.
    """
    fits = bool(prepared.qconfig.algorithms)
    again = fits or prepared.target.reduce_range is ReduceRange.OBSERVED
    if again and samples.is_one_shot:
        samples = replace(samples, source=open_samples(samples, prepared.inputs).in_memory())
    if fits and check.samples is None and check.hold_apart is None:
        batches = in_smaller_batches(open_samples(samples, prepared.inputs), prepared)
        cut = replace(samples, source=batches)
        fitted, tried = check.held_apart_by_itself(cut, prepared.inputs)
        return Shares(samples, fitted, tried.unseen, check)
    rest, check = check.held_apart(samples, prepared.inputs)
    return Shares(rest, rest, None, check)


def carry_out(job: StaticJob, observe: Observe) -> tuple[Made[Plan], Statistics]:
    """(plan and model with its verdict, the statistics that the plan is made of).

    Args:
        job: what is wanted.
        observe: runs the calibration, or reads an earlier one. It is called when all that can be
            refused without it was looked at: it may take minutes.
    """
    check_format(job.file_format)
    names = job.prepared.qconfig.algorithms
    check_samples(names, job.samples)
    if job.size is not None and job.samples is None:
        raise CalibrationError(
            "size: the bits of weights are chosen by samples, which statistics do not hold: give "
            "SAMPLES in place of statistics (or of a run function), or weight_bits."
        )
    check_ignored(job.samples, job.check.unseen)
    prepared, excerpt = job.prepared, job.prepared.new_excerpt()
    unseen = None
    if job.check.unseen is not None:
        unseen = static_validation(prepared, job.check, excerpt, job.work)
    elif job.apart is not None:
        apart = open_samples(job.apart, prepared.inputs)
        unseen = Validation(prepared.model, InputSource.NOT_FITTED, apart, work=job.work)
    if names:
        batches = open_samples(job.samples, prepared.inputs)
        prepared = improve_model(prepared, batches, job.objective)
    statistics, seen = observe(prepared, excerpt)
    if job.size is not None:
        prepared = with_size(
            prepared, statistics, open_samples(job.samples, prepared.inputs), job.size
        )

    def decide(prepared: Prepared) -> Plan:
        return plan_as_targeted(prepared, statistics, job.samples, job.objective)

    def improved(prepared: Prepared, plan: Plan) -> Improved:
        if not names:
            return Improved(prepared, plan)
        return improve_weights(prepared, plan, batches)

    # beside the float model as it was given, whatever a PTQ algorithm made of it
    validation = unseen or static_validation(job.prepared, job.check, seen, job.work)
    made = make_static(
        prepared, decide, job.file_format, validation, job.check.min_sqnr_db, improved
    )
    return made, statistics
