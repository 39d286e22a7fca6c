"""Job of storing weights in groups, from a plan to a tried model.

    model --plan_job--> plan --find_integers--> integers --write_weights--> model --try_out-->
    verdict

One path for models of any size: integers are found layer after layer, and go to a file where a
place for them is named.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from onnxq.checking.check import Check
from onnxq.checking.runnable import Made, runnable, timed_in_pairs
from onnxq.checking.summary import Summary, summarize
from onnxq.checking.validation import Validation, on_excerpt
from onnxq.checking.with_verdict import check_bound_is_seen
from onnxq.core.stopwatch import Stopwatch
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.saving import weight_bytes
from onnxq.operator import Float
from onnxq.qparams.groups import INT8_ACCURACY
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import InputSource
from onnxq.samples import Batches, Samples, input_specs, open_samples
from onnxq.samples.excerpt import EVERY, Excerpt
from onnxq.samples.ignored import check_ignored
from onnxq.samples.inputs import Batch
from onnxq.weights.find_integers import find_integers
from onnxq.weights.mixed_bits import Mixed, SizeAim, mixed_bits
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.quantized_weights_file import QuantizedWeightsFile, quantized_weights_head
from onnxq.weights.weight_plan import WeightPlan, WeightRequest
from onnxq.weights.write_weights import WeightFormat, misread, write_weights

MOST_PAIRED = 1 << 30
"""Bytes of weights, at most, of a float model whose sessions are opened anew for a time; chosen."""


@dataclass(frozen=True, slots=True)
class WeightsJob:
    """Wishes about the weights of a canonical model.

    Attributes:
        samples: that methods look at; None: none.
        check: what the result is tried on, and the bound that it keeps there.
        aim: size that bits are mixed for; None: all layers have those of the request.
    """

    model: ir.Model
    request: WeightRequest
    samples: Samples | None = None
    accuracy: int = INT8_ACCURACY
    format: WeightFormat = WeightFormat.MATMULNBITS
    check: Check = Check.CALIBRATION
    work: Stopwatch = field(default_factory=Stopwatch)
    aim: SizeAim | None = None

    def opened(self) -> Batches | None:
        """The samples, which can be gone through again and again; None: there are none."""
        if self.samples is None:
            return None
        batches = open_samples(self.samples, input_specs(self.model))
        return batches.in_memory() if self.samples.is_one_shot else batches


def with_samples_apart(job: WeightsJob) -> WeightsJob:
    """The job, whose verdict is of samples that nothing fits, where there are more than a few."""
    fits = job.request.method.needs_samples or job.aim is not None
    if job.samples is None or not fits:
        return job
    samples = job.samples
    if samples.is_one_shot:
        samples = replace(samples, source=job.opened())
    rest, check = job.check.held_apart_by_itself(samples, input_specs(job.model), EVERY)
    return replace(job, samples=rest, check=check)


def plan_job(job: WeightsJob) -> tuple[WeightPlan, Mixed | None]:
    """(plan of the job, what its bits were chosen from); None where bits are not mixed."""
    check_ignored(job.samples, job.check.unseen)
    plan = plan_weights(job.model, job.request)
    if job.aim is None:
        return _readable(plan, job.format), None
    samples = job.opened()
    if samples is None:
        raise CalibrationError(
            "bits are mixed by what they cost on samples, and none are given. Give some, or the "
            "same bits for all linear layers."
        )
    mixed = mixed_bits(job.model, plan.linear_layers, samples, job.aim.budget(job.model, plan))
    return _readable(mixed.plan.with_embeddings_of(plan), job.format), mixed


def _readable(plan: WeightPlan, format: WeightFormat) -> WeightPlan:
    """The plan without layers that ONNX Runtime would misread in that format."""
    if format is not WeightFormat.QDQ:
        return plan
    floats = misread(plan)
    left = plan.leaving(floats)
    if floats and not left.quantized:
        name, why = next(iter(floats.items()))
        raise ModelError(f"no linear layer can be stored in groups ('{name}': {why.reason}).")
    return left


def carry_out_weights(
    job: WeightsJob,
    plan: WeightPlan | None = None,
    place: Path | None = None,
    executor: Executor | None = None,
) -> Made[WeightPlan]:
    """Plan and model, with its verdict.

    Args:
        job: what is wanted.
        plan: of `plan_job`; None: it is made.
        place: file that integers are written to as they are found, and that an earlier run of the
            job may have begun; the model reads it. None: integers stay in memory.
        executor: whose workers find integers; None: this process. They are the same.
    """
    samples, excerpt = job.opened(), Excerpt(input_specs(job.model))
    unseen = _unseen(job)
    if unseen is None and samples is None:
        check_bound_is_seen(None, job.check.min_sqnr_db)
    if plan is None:
        plan, _ = plan_job(job)
    batches = () if samples is None else excerpt.watching(samples)
    found = _integers(job, plan, batches, place, executor)

    def make(floats: Mapping[str, Float]) -> tuple[WeightPlan, QuantizedModel]:
        left = plan.leaving(floats)
        return left, write_weights(job.model, left, found, job.accuracy, job.format)

    validation = unseen or _seen(job, excerpt)
    check_bound_is_seen(validation, job.check.min_sqnr_db)
    if validation is None:
        return Made(*make({}))
    bound = job.check.min_sqnr_db

    def summary_of(made: WeightPlan) -> Summary:
        return summarize(job.model, made.dynamic_decisions)

    made = runnable(make, lambda made: list(made.nodes), summary_of, validation, bound)
    is_large = weight_bytes(job.model) > MOST_PAIRED
    return made if is_large else timed_in_pairs(job.model, made, job.work.spent_s)


def _integers(
    job: WeightsJob,
    plan: WeightPlan,
    batches: Iterable[Batch],
    place: Path | None,
    executor: Executor | None,
) -> Mapping[str, Mapping[str, ir.TensorProtocol]]:
    """Layer -> tensors of its integers."""
    sees = any(decision.method.needs_samples for decision in plan.quantized.values())
    if not sees:
        for _ in batches:  # seen for the verdict alone
            pass
    shown = batches if sees else ()
    if place is None:
        return find_integers(job.model, plan, shown, QuantizedWeightsFile(), executor)
    own = job.opened() if sees else None
    head = quantized_weights_head(job.model, plan, () if own is None else own)
    with QuantizedWeightsFile.open(place, head) as integers:
        return find_integers(job.model, plan, shown, integers, executor)


def _unseen(job: WeightsJob) -> Validation | None:
    """Validation on samples to check on; None where there are none."""
    if job.check.unseen is None:
        return None
    batches = open_samples(job.check.unseen, input_specs(job.model))
    return Validation(job.model, InputSource.UNSEEN, batches, work=job.work)


def _seen(job: WeightsJob, excerpt: Excerpt) -> Validation | None:
    """Validation on some of the samples that were seen; None where no run is wanted."""
    if not job.check.runs:
        return None
    return on_excerpt(job.model, excerpt, {}, job.work)
