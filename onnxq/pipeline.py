"""The main job as one call: the stages joined, and their result tried."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq import targets
from onnxq.checking.static_job import StaticJob, carry_out
from onnxq.checking.with_verdict import (
    Check,
    dynamic_trial,
    make_dynamic,
    make_static,
    static_trial,
)
from onnxq.dynamic.dynamic_decision import Objective, as_objective
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.requests import check_something, notes_on_dtype, nothing_quantized
from onnxq.dynamic.spec import as_dtype, check_names, mapping_of
from onnxq.errors import CalibrationError
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.improve.carry_out import check_samples
from onnxq.ort.types_by_run import types_by_run
from onnxq.qconfig.excluded import excluding
from onnxq.samples import is_one_shot, open_samples
from onnxq.samples.held_apart import held_apart
from onnxq.samples.ignored import check_ignored
from onnxq.static.arguments import check_decibels, check_prepared, check_progress
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.targets.range_reduction import RangeReduction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.costs import Costs
    from onnxq.dtypes import QDType
    from onnxq.dynamic.dynamic_decision import DynamicPlan
    from onnxq.dynamic.spec import DynamicSpec
    from onnxq.qconfig import QConfigMapping
    from onnxq.qconfig.input_codes import Asked
    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.samples import Batches
    from onnxq.samples.excerpt import Excerpt
    from onnxq.static.calibrate import Progress
    from onnxq.static.prepared import ModelSource, Prepared
    from onnxq.targets import Target

    Batch = Mapping[str, npt.NDArray[np.generic]]
    RunFunction = Callable[..., object]


def convert(prepared: Prepared, format: str = "qdq") -> QuantizedModel:
    """The quantized model, from what `prepared.run` has observed: plan and rewrite in one.

    It was run on a few of these batches, and has a verdict.

    Raises:
        CalibrationError: nothing was observed yet; or improvements are asked for, which need the
            samples: `quantize` has them.

    Warns:
        UserWarning: an output is far from the float model's.
    """
    begun_s = time.process_time()
    check_prepared(prepared, "convert")
    check_samples(prepared.qconfig.improve, None)
    statistics = prepared.statistics
    trial = static_trial(prepared, Check.CALIBRATION, prepared.excerpt, begun_s)
    made = make_static(prepared, lambda p: plan(p, statistics), format, trial)
    _note(made.model, made.plan)
    _warn(made.model)
    return made.model


def quantize(
    model: ModelSource,
    samples: str | Path | Batches | Batch | Iterable[Batch] | RunFunction | None = None,
    run_args: Iterable[object] = (),
    *,
    qconfig: QConfigMapping | str | Path | None = None,
    target: str | Target | None = None,
    format: str = "qdq",
    statistics: Statistics | None = None,
    feedback: Mapping[str, str] | None = None,
    objective: Objective | str = Objective.SPEED,
    range_reduction: RangeReduction | str | None = None,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
    check: object = Check.CALIBRATION,
    min_sqnr_db: float | None = None,
    input_codes: Mapping[str, Asked] | None = None,
    output_codes: Sequence[str] = (),
    costs: Costs | None = None,
    improve: Sequence[str] | None = None,
    hold_apart: int | None = None,
    executor: Executor | None = None,
    exclude: Collection[str] = (),
    progress: Progress | None = None,
) -> QuantizedModel:
    """Prepare, calibrate, plan, rewrite, try: the quantized model, with a verdict.

    Nodes with which ONNX Runtime does not run it are left in float; the verdict names them.

    Args:
        model: path, ModelProto or onnx_ir.Model of the float model; it is not changed.
        samples: what to calibrate on: a file or folder, {input name: array of all samples}, batches
            of that form; or a function that is called with a Prepared and run_args and
            calls prepared.run(batch), as PyTorch documents quantize(model, run_fn, run_args).
        run_args: for a run function.
        qconfig: what to quantize and how, or the path of a YAML file that says it; None: onnxq's
            default.
        target: the machine that the result is for; None: `targets.get_default()`.
        format: see `rewrite`.
        statistics: of an earlier calibration, in place of samples.
        feedback: {output name: input name} of state that each batch hands to the next one.
        objective: "speed" leaves weights of float nodes as they are; "size" stores them as int8,
            which is as fast, and of nodes that are quantized dynamically quantizes every weight.
        range_reduction: where weights give up range so that pairs of products fit int16:
            "worst-case", "everywhere", or "observed", which is exact on the samples alone and needs
            them; None: the target's own. See onnxq.targets.range_reduction.
        batch_size: samples per run; None: the model's static batch, else 1.
        ignore: names of arrays in the samples that are no inputs (labels).
        check: what to try the result on: samples that it was not calibrated on, as `samples`; or a
            Check.
        min_sqnr_db: bound on every float output, in dB; None: none.
        input_codes: {input name: "pixels", Pixels(mean, std, scale), or "codes"} of inputs that
            it takes as uint8; samples may hold these, or what the float model takes.
        output_codes: names of outputs that it gives as codes.
        costs: times of nodes, which decide where integers pay, as Costs.load reads them from what
            `onnxq costs` wrote; None: the target's own table, where it has one.
        improve: names of improvements of weights, such as ("smooth", "bias", "round"), each judged
            on a quarter of the samples, which it does not see (docs/guides/improve.md); None: those
            of the qconfig.
        hold_apart: one batch of the samples in so many is not calibrated on: the result is tried
            on these, as `tune` does; None: none.
        executor: whose workers run the calibration, each on parts of the samples; the result is the
            same. None: this process.
        exclude: names or globs of nodes that stay in float, whatever the qconfig says.
        progress: called with (batches done, batches in all or None) as calibration goes on.

    Raises:
        CalibrationError: neither or both of samples and statistics, or unusable ones; improvements
            without samples; or an executor where no samples are calibrated on.
        QConfigError: an option or improvement is not known, or the bound is no number.
        ModelError: ONNX Runtime does not run the float model.
        VerificationError: an output is below min_sqnr_db; the error has the verdict.
        WorkerError: workers died, more often than it was tried.

    Warns:
        UserWarning: an output is far from the float model's; or an executor is given, and feedback.
    """
    begun_s = time.process_time()
    check_decibels(min_sqnr_db)
    check_progress(progress)
    if (samples is None) == (statistics is None):
        raise CalibrationError(
            "quantize wants either samples or statistics of an earlier calibration."
        )
    if executor is not None and (samples is None or callable(samples)):
        raise CalibrationError(
            "executor shares out a calibration on samples: give these, not statistics or a function"
            " that runs them."
        )
    aim = as_objective(objective)
    prepared = prepare(
        model,
        qconfig,
        target,
        feedback,
        range_reduction,
        input_codes=input_codes,
        output_codes=output_codes,
        costs=costs,
        exclude=exclude,
    )
    if improve is not None:
        prepared = replace(prepared, qconfig=prepared.qconfig.set_improve(improve))
    if hold_apart is not None:
        opened = open_samples(_shareable(samples, check), prepared.inputs, batch_size, ignore)
        check_ignored(ignore, samples)
        samples, check = held_apart(opened, hold_apart)
    again = prepared.target.range_reduction is RangeReduction.OBSERVED or prepared.qconfig.improve
    if again and is_one_shot(samples):
        samples = open_samples(samples, prepared.inputs, batch_size, ignore).in_memory()

    def observe(prepared: Prepared, excerpt: Excerpt) -> tuple[Statistics, Excerpt]:
        if statistics is not None:
            return statistics, excerpt
        if callable(samples):
            samples(prepared, *run_args)
            return prepared.statistics, prepared.excerpt
        batches = open_samples(samples, prepared.inputs, batch_size, ignore)
        watched = excerpt.watching(batches)
        return calibrate(prepared, watched, executor=executor, progress=progress), excerpt

    job = StaticJob(
        prepared,
        format,
        check,
        None if callable(samples) else samples,
        aim,
        batch_size,
        ignore,
        min_sqnr_db,
        begun_s,
    )
    made, _ = carry_out(job, observe)
    _note(made.model, made.plan)
    _warn(made.model)
    return made.model


def _shareable(samples: object, check: object) -> object:
    """The samples, some of which can be held apart.

    Raises:
        CalibrationError: there are none, or others to check on.
    """
    if samples is None or callable(samples) or check is not Check.CALIBRATION:
        raise CalibrationError(
            "hold_apart checks on some of the samples: give samples, and no others as check."
        )
    return samples


def _note(model: QuantizedModel, made: Plan | DynamicPlan) -> None:
    """Adds the notes of the plan to the verdict: who asks for no plan sees them nowhere else."""
    verdict = model.verdict if made.notes else None  # asking looks at every node
    if verdict is not None:
        model.attach(replace(verdict, notes=(*verdict.notes, *made.notes)))


def _warn(model: QuantizedModel) -> None:
    """Warns of an output that is far from float, for the caller of our caller."""
    verdict = model.verdict
    if verdict is not None and verdict.warning:
        warnings.warn(verdict.warning, UserWarning, stacklevel=3)


def quantize_dynamic(
    model: ModelSource,
    qconfig_spec: DynamicSpec = None,
    dtype: QDType | str | None = None,
    *,
    target: str | Target | None = None,
    objective: Objective | str = Objective.SPEED,
    check: object = Check.CALIBRATION,
    min_sqnr_db: float | None = None,
    feedback: Mapping[str, str] | None = None,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
    exclude: Collection[str] = (),
) -> QuantizedModel:
    """The model with its weights quantized ahead of time, activations when it runs: no data needed.

    It was run, on made-up inputs or on samples to check on, and has a verdict.

    Args:
        model: path, ModelProto or onnx_ir.Model of the float model; it is not changed.
        qconfig_spec: what to quantize: None: every operator that has a dynamic form; a set of op
            types; {op type, node name or glob: QConfigDynamic, or None for float}; or a
            QConfigMapping, which says everything.
        dtype: of the weights where the spec does not say it: qint8 or float16; None: qint8.
        target: the machine that the result is for; None: `targets.get_default()`.
        objective: "speed" leaves in float what the target's measurements say would be slower
            (with a UserWarning where that is everything); "size" quantizes every weight.
        check: samples to try the result on; or a Check.
        min_sqnr_db: bound on every float output, in dB; needs samples.
        feedback: {output name: input name} of state that each batch to check on hands to the next.
        batch_size: samples per run, of those to check on; None: the model's static batch, else 1.
        ignore: names of arrays in the samples to check on that are no inputs (labels).
        exclude: names or globs of nodes that stay in float, whatever the spec says.

    Raises:
        ModelError: the model is unreadable, quantized already, of a refused type or opset, has no
            weights to quantize, or has NaN or Inf in one; ONNX Runtime does not run it.
        CalibrationError: unusable samples.
        VerificationError: an output is below min_sqnr_db; the error has the verdict.
        QConfigError: the spec, dtype, target or objective names what is not there, the spec has an
            entry for the nodes that the dtype is for, or the bound is no number.
    """
    begun_s = time.process_time()
    check_decibels(min_sqnr_db)
    source, made = plan_dynamic(
        model, qconfig_spec, dtype, target=target, objective=objective, exclude=exclude
    )
    if made.slower and not made.quantized:
        warnings.warn(nothing_quantized(made.target), UserWarning, stacklevel=2)
    trial = dynamic_trial(source, check, begun_s, batch_size, ignore, feedback)
    tried = make_dynamic(source, made, trial, min_sqnr_db)
    _note(tried.model, tried.plan)
    _warn(tried.model)
    return tried.model


def plan_dynamic(
    model: ModelSource,
    qconfig_spec: DynamicSpec = None,
    dtype: QDType | str | None = None,
    *,
    target: str | Target | None = None,
    objective: Objective | str = Objective.SPEED,
    exclude: Collection[str] = (),
) -> tuple[ir.Model, DynamicPlan]:
    """(canonical float model, what `quantize_dynamic` would do with it); arguments as there.

    Raises:
        ModelError, QConfigError: as there.
    """
    aim, mapping = as_objective(objective), excluding(mapping_of(qconfig_spec, dtype), exclude)
    beside = [] if dtype is None else notes_on_dtype(mapping, as_dtype(dtype))
    chosen = targets.resolve(target)
    canonical = canonicalize(load(model), types_by_run)
    notes = (*canonical.notes, *check_names(canonical.model, mapping), *beside)
    made = dynamic_plan(canonical.model, mapping, chosen, aim, notes)
    check_something(made, canonical.model)
    return canonical.model, made
