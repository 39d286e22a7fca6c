"""Static and dynamic models made of their plans, tried on ONNX Runtime: each with its verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxq.checking.check import Check
from onnxq.checking.runnable import Made, runnable
from onnxq.checking.summary import Summary, summarize, summarize_precisions
from onnxq.checking.validation import Validation, on_excerpt, on_made_up_inputs
from onnxq.core.collector import without_collector
from onnxq.core.stopwatch import Stopwatch
from onnxq.dynamic.dynamic_decision import DynamicPlan
from onnxq.dynamic.expected_sizes import expected_sizes
from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.errors import QConfigError
from onnxq.operator import Float
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import InputSource
from onnxq.samples import input_specs, open_samples
from onnxq.samples.excerpt import Excerpt
from onnxq.samples.ignored import check_ignored
from onnxq.samples.inputs import Batch
from onnxq.samples.state import check_feedback
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.static.rewrite import rewrite
from onnxq.weights.algorithm import Improved


def static_validation(
    prepared: Prepared, check: Check, excerpt: Excerpt, work: Stopwatch
) -> Validation | None:
    """Validation of what becomes of `prepared`; None where no run is wanted."""
    if not check.runs:
        return None
    source, feedback = prepared.model, prepared.feedback
    if check.unseen is not None:
        batches = open_samples(check.unseen.with_feedback(feedback), prepared.inputs)
        return Validation(source, InputSource.UNSEEN, batches, None, feedback, work)
    return on_excerpt(source, excerpt, feedback, work)


def make_static(
    prepared: Prepared,
    decide: Callable[[Prepared], Plan],
    file_format: str,
    validation: Validation | None,
    min_sqnr_db: float | None = None,
    improve: Callable[[Prepared, Plan], Improved] = Improved,
) -> Made[Plan]:
    """Plan and model, tried."""

    def make(floats: Mapping[str, Float]) -> tuple[Plan, QuantizedModel]:
        left = prepared.leaving(floats) if floats else prepared
        with without_collector():
            made = decide(left)
        if floats:
            dynamic = {name: d for name, d in made.dynamic.items() if name not in left.left}
            made = replace(made, dynamic=dynamic, decisions={**made.decisions, **left.left})
        better = improve(left, made)
        with without_collector():
            return better.plan, rewrite(better.prepared, better.plan, file_format)

    def summary_of(made: Plan) -> Summary:
        return summarize_precisions(prepared.model, made.decisions, made.precisions, made.dtypes)

    check_bound_is_seen(validation, min_sqnr_db)
    if validation is None:
        return Made(*make({}))
    return runnable(make, _quantized, summary_of, validation, min_sqnr_db)


def _quantized(made: Plan) -> list[str]:
    """Names of quantized nodes: those with weights first, which gain most by it."""
    static = {n: d for n, d in made.decisions.items() if isinstance(d, Quantize)}
    own = [name for name, decision in static.items() if not decision.folded_into]
    weighted = [name for name in own if name in made.weights]
    return [*weighted, *made.dynamic, *(name for name in own if name not in made.weights)]


def check_bound_is_seen(validation: Validation | None, min_sqnr_db: float | None) -> None:
    """Raises QConfigError for a bound on outputs that no samples show."""
    if min_sqnr_db is not None and (validation is None or not validation.has_samples):
        raise QConfigError(
            f"a bound of {min_sqnr_db:g} dB needs samples to compare with float on: give some to "
            "check on (check=samples, on the command line --check SAMPLES)."
        )


def dynamic_validation(
    source: ir.Model,
    check: Check,
    work: Stopwatch,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Validation | None:
    """A Validation of what becomes of a canonical model; arguments as of `static_validation`.

    Args:
        source: canonical float model.
        check: what it is tried on.
        work: CPU time since the work began.
        shapes: of inputs that the user expects, where the model leaves sizes open.
    """
    if not check.runs:
        return None
    samples = check.unseen
    if samples is not None:
        check_feedback(source, samples.feedback)
    if samples is None or samples.source is None:
        return on_made_up_inputs(source, work, expected_sizes(source, shapes or {}, {}))
    batches = open_samples(samples, input_specs(source, samples.feedback.values()))
    check_ignored(samples)
    return Validation(source, InputSource.UNSEEN, batches, None, samples.feedback, work)


def first_unseen(source: ir.Model, check: Check) -> Batch:
    """The first batch of the samples to check on; empty: there are none, or they come only once."""
    samples = check.unseen
    if samples is None or samples.source is None or samples.is_one_shot:
        return {}
    specs = input_specs(source, samples.feedback.values())
    return next(iter(open_samples(samples, specs)), {})


def make_dynamic(
    source: ir.Model,
    plan: DynamicPlan,
    validation: Validation | None,
    min_sqnr_db: float | None = None,
) -> Made[DynamicPlan]:
    """Plan and model, tried; raises as `make_static`."""

    def make(floats: Mapping[str, Float]) -> tuple[DynamicPlan, QuantizedModel]:
        made = replace(plan, decisions={**plan.decisions, **floats})
        return made, rewrite_dynamic(source, made, made.model_hash)  # just planned from it

    check_bound_is_seen(validation, min_sqnr_db)
    if validation is None:
        return Made(*make({}))

    def summary_of(made: DynamicPlan) -> Summary:
        return summarize(source, made.decisions)

    return runnable(make, lambda made: list(made.quantized), summary_of, validation, min_sqnr_db)
