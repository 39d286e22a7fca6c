"""Job of storing weights in blocks, from a plan to a tried model.

plan --find_codes--> codes --write_weights--> model --try_out--> verdict
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq.blocks.codes_file import CodesFile
from onnxq.blocks.find_codes import find_codes
from onnxq.blocks.plan_weights import WeightPlan, plan_weights
from onnxq.blocks.write_products import INT8_ACCURACY
from onnxq.blocks.write_weights import write_weights
from onnxq.checking.runnable import Made, runnable
from onnxq.checking.trial import Trial, on_made_up_inputs
from onnxq.checking.with_verdict import Check, check_bound_is_seen
from onnxq.quantized.verdict import Evidence
from onnxq.samples import input_specs, open_samples
from onnxq.samples.excerpt import Excerpt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from concurrent.futures import Executor

    import onnx_ir as ir

    from onnxq.blocks.plan_weights import WeightRequest
    from onnxq.operator import Float
    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.samples.inputs import Batch


@dataclass(frozen=True, slots=True)
class WeightsJob:
    """Wishes about the weights of a canonical model.

    Attributes:
        model: canonical float model.
        request: form and method of the codes.
        samples: that methods look at; None: none.
        accuracy: accuracy_level of the products.
        check: samples to try the result on; or a Check.
        batch_size: of samples.
        ignore: names of arrays in samples that are no inputs.
        min_sqnr_db: bound on every float output; None: none.
        begun_s: CPU time of the process when the work began.
    """

    model: ir.Model
    request: WeightRequest
    samples: object = None
    accuracy: int = INT8_ACCURACY
    check: object = Check.CALIBRATION
    batch_size: int | None = None
    ignore: Collection[str] = ()
    min_sqnr_db: float | None = None
    begun_s: float = field(default_factory=time.process_time)


def carry_out_weights(
    job: WeightsJob, codes: CodesFile | None = None, executor: Executor | None = None
) -> Made[WeightPlan]:
    """Plan and model, with its verdict.

    Args:
        job: what is wanted.
        codes: holds codes that were found before, and gets the others; None: in memory.
        executor: whose workers find them; None: this process.

    Raises:
        ModelError: the model has no products with weights, or ONNX Runtime does not run it.
        CalibrationError: unusable samples, or none where the method needs some.
        QConfigError: a bound without samples that it could hold for.
        VerificationError: the bound is broken.
    """
    plan = plan_weights(job.model, job.request)
    inputs = input_specs(job.model)
    excerpt = Excerpt(inputs)
    batches: Iterable[Batch] = ()
    if job.samples is not None:
        opened = open_samples(job.samples, inputs, job.batch_size, job.ignore)
        batches = excerpt.watching(opened)
        if not job.request.method.needs_moments:
            for _ in batches:  # seen for the verdict alone
                pass
    unseen = _unseen(job)
    if job.min_sqnr_db is not None and unseen is None and job.samples is None:
        check_bound_is_seen(None, job.min_sqnr_db)
    found = find_codes(job.model, plan, batches, codes or CodesFile(), executor)

    def make(floats: Mapping[str, Float]) -> tuple[WeightPlan, QuantizedModel]:
        left = plan.leaving(floats)
        return left, write_weights(job.model, left, found, job.accuracy)

    trial = unseen or _seen(job, excerpt)
    check_bound_is_seen(trial, job.min_sqnr_db)
    if trial is None:
        return Made(*make({}))
    return runnable(make, lambda made: list(made.quantized), trial, job.min_sqnr_db)


def _unseen(job: WeightsJob) -> Trial | None:
    """A Trial on samples to check on; None where there are none."""
    if isinstance(job.check, Check):
        return None
    batches = open_samples(job.check, input_specs(job.model), job.batch_size, job.ignore)
    return Trial(job.model, Evidence.UNSEEN, batches, begun_s=job.begun_s)


def _seen(job: WeightsJob, excerpt: Excerpt) -> Trial | None:
    """A Trial on some of the samples that were seen; None where none is wanted."""
    if job.check is Check.NONE:
        return None
    chosen = excerpt.chosen()
    if not chosen:
        return on_made_up_inputs(job.model, job.begun_s)
    evidence = Evidence.CALIBRATION
    return Trial(job.model, evidence, chosen, excerpt.samples, begun_s=job.begun_s)
