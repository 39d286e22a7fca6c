"""The main job as one call: the stages joined, and their result tried."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import targets
from onnxq.checking.check import Check
from onnxq.checking.static_job import Shares, StaticJob, shares_of
from onnxq.checking.with_verdict import (
    dynamic_validation,
    first_unseen,
    make_static,
    static_validation,
)
from onnxq.core.stopwatch import Stopwatch
from onnxq.dtypes import QDType
from onnxq.dynamic.dynamic_decision import DynamicPlan, Objective, as_objective
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.expected_sizes import expected_sizes
from onnxq.dynamic.requests import check_something, notes_on_dtype
from onnxq.dynamic.spec import DynamicSpec, as_dtype, check_names, mapping_of
from onnxq.errors import CalibrationError, QConfigError
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.jobs import child
from onnxq.ort.types_by_run import types_by_run
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.qconfig.names import excluding
from onnxq.qconfig.quantized_input import Asked
from onnxq.quantized.outcome import summaries
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.repair.dynamic import make_and_repair
from onnxq.repair.search import carry_out_and_repair
from onnxq.samples import Samples, open_samples
from onnxq.samples.excerpt import Excerpt
from onnxq.static.arguments import check_prepared, mapping_from
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import backend_of, prepare
from onnxq.static.prepared import ModelSource, Prepared
from onnxq.targets import Target
from onnxq.times import Costs
from onnxq.weights.carry_out import check_samples, with_algorithms
from onnxq.weights.mixed_bits import SizeAim

Batch = Mapping[str, npt.NDArray[np.generic]]
Source = str | Path | Statistics | Batch | Iterable[Batch] | Callable[..., object] | None


def convert(prepared: Prepared, format: str = "qdq") -> QuantizedModel:
    """The quantized model, from what `prepared.run` has observed: plan and rewrite in one.

    It was run on a few of these batches, and has a verdict.

    Raises:
        CalibrationError: nothing was observed yet; or PTQ algorithms are asked for, which need the
            samples: `quantize` has them.
    Warns:
        UserWarning: an output is far from the float model's.
    """
    work = Stopwatch()
    check_prepared(prepared, "convert")
    check_samples(prepared.qconfig.algorithms, None)
    statistics = prepared.statistics
    validation = static_validation(prepared, Check.CALIBRATION, prepared.excerpt, work)
    made = make_static(prepared, lambda p: plan(p, statistics), format, validation)
    _note(made.model, made.plan)
    _warn(made.model)
    return made.model


def quantize(
    model: ModelSource,
    samples: Samples | Source = None,
    run_args: Iterable[object] = (),
    *,
    qconfig: QConfigMapping | str | Path | None = None,
    target: str | Target | None = None,
    format: str = "qdq",
    objective: Objective | str = Objective.SPEED,
    check: object = Check.CALIBRATION,
    quantized_input: Mapping[str, Asked] | None = None,
    quantized_output: Sequence[str] = (),
    costs: Costs | None = None,
    exclude: Collection[str] = (),
    weight_bits: int | SizeAim | None = None,
    executor: Executor | None = None,
) -> QuantizedModel:
    """Prepare, calibrate, plan, rewrite, try: the quantized model, with a verdict.

    Nodes with which ONNX Runtime does not run it are left in float; the verdict names them.

    Args:
        model: path, ModelProto or onnx_ir.Model of the float model; it is not changed.
        samples: what to calibrate on: a file or folder, {input name: array of all samples}, batches
            of that form; Statistics of an earlier calibration; or a function that is called with a
            Prepared and run_args and calls prepared.run(batch), as PyTorch documents
            quantize(model, run_fn, run_args). onnxq.Samples says how they are read.
        run_args: for a run function.
        qconfig: what to quantize and how, or the path of a YAML file that says it; None: onnxq's
            default. Improvements of weights that it names (`set_improve`; none: "auto", with
            "smooth" where outlying channels cost much) are each judged on a quarter of the
            samples, which it does not see (docs/guides/improve.md).
        target: the machine that the result is for; None: `targets.get_default()`. Its range
            reduction "observed" needs samples, on which alone it is exact.
        format: see `rewrite`.
        objective: "speed" leaves weights of float nodes as they are; "size" stores them as int8,
            which is as fast, and of nodes that are quantized dynamically quantizes every weight.
        check: what to try the result on, and what it has to keep: samples that it was not
            calibrated on, or an onnxq.Check.
        quantized_input: {input name: "pixels", Pixels(mean, std, scale), or "integers"} of inputs
            that it takes as uint8; samples may hold these, or what the float model takes.
        quantized_output: names of outputs that it gives as integers.
        costs: times of nodes, which decide where integers pay, as Costs.load reads them from what
            `onnxq costs` wrote; None: the target's own table, where it has one.
        exclude: names or globs of nodes that stay in float, whatever the qconfig says.
        weight_bits: 2, 4 or 8, of weights of 1024 elements and more, which the file packs and the
            session reads as int8; None: those of the qconfig. Below 8, the algorithms "round" and
            "bias" run unless the qconfig names others. SizeAim(size=0.2) is of the file, over that
            of the float model: each weight gets 8, 4 or 2 bits, by what that costs at the outputs
            on a few samples.
        executor: whose workers run the calibration, each on parts of the samples; the result is the
            same. None: this process.
    Raises:
        CalibrationError: no samples, or unusable ones; statistics where PTQ algorithms, a size or a
            check need samples; or an executor where no samples are calibrated on.
        QConfigError: an option or algorithm is not known, the bound is no number, or the size
            cannot be reached.
        ModelError: ONNX Runtime does not run the float model.
        VerificationError: an output is below the check's bound; the error has the verdict.
        WorkerError: workers died, more often than it was tried.
    Warns:
        UserWarning: an output is far from the float model's; or an executor is given, and feedback.
    """
    work = Stopwatch()
    given = Samples.of(samples)
    source, checked = given.source, Check.of(check, given)
    if source is None:
        raise CalibrationError("quantize wants samples, or statistics of an earlier calibration.")
    can_share = not isinstance(source, Statistics) and not callable(source)
    if executor is not None and not can_share:
        raise CalibrationError(
            "executor shares out a calibration on samples: give these, not statistics or a function"
            " that runs them."
        )
    if checked.hold_apart is not None and not can_share:
        raise CalibrationError(
            "hold_apart checks on some of the samples: give these, not statistics or a function "
            "that runs them."
        )
    bits, size = _bits_or_size(weight_bits)
    aim = as_objective(objective)
    child.begin()  # gets ready while the model is looked at
    prepared = prepare(
        model,
        _with_bits(qconfig, target, bits),
        target,
        given.feedback,
        quantized_input=quantized_input,
        quantized_output=quantized_output,
        costs=costs,
        exclude=exclude,
    )
    prepared = with_algorithms(prepared, given if can_share else None, size)
    shares = Shares(given, given, None, checked)
    if can_share:
        shares = shares_of(given, checked, prepared)

    def observe(prepared: Prepared, excerpt: Excerpt) -> tuple[Statistics, Excerpt]:
        if isinstance(source, Statistics):
            return source, excerpt
        if callable(source):
            source(prepared, *run_args)
            return prepared.statistics, prepared.excerpt
        probed = excerpt.watching(open_samples(shares.observed, prepared.inputs))
        return calibrate(prepared, probed, executor=executor), excerpt

    fitted = shares.fitted if can_share else None
    job = StaticJob(prepared, format, shares.check, fitted, aim, work, size, shares.apart)
    made, _ = carry_out_and_repair(checked.repair, model, job, observe)
    _note(made.model, made.plan)
    _warn(made.model)
    return made.model


def _bits_or_size(asked: int | SizeAim | None) -> tuple[int | None, float | None]:
    """(bits of every weight, size of the file); one of them is asked for, or none."""
    if not isinstance(asked, SizeAim):
        return asked, None
    if asked.size is None:
        raise QConfigError("weight_bits: give SizeAim(size=...); bits_average is for groups alone.")
    return None, asked.size


def _with_bits(
    qconfig: QConfigMapping | str | Path | None, target: str | Target | None, bits: int | None
) -> QConfigMapping | str | Path | None:
    """The qconfig with weights of so many bits; None: as it is."""
    if bits is None:
        return qconfig
    backend = backend_of(target)
    mapping = mapping_from(qconfig, backend) or default_qconfig_mapping(backend)
    return mapping.set_weight_bits(bits)


def _note(model: QuantizedModel, made: Plan | DynamicPlan) -> None:
    """Adds the notes of the plan to the verdict: who asks for no plan sees them nowhere else."""
    improved = summaries(made.outcomes) if isinstance(made, Plan) else []
    notes = (*made.notes, *improved)
    verdict = model.verdict if notes else None  # asking looks at every node
    if verdict is not None:
        model.attach(replace(verdict, notes=(*verdict.notes, *notes)))


def _warn(model: QuantizedModel) -> None:
    """Warns of an output that is far from float, and of no gain, for the caller of our caller."""
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
    exclude: Collection[str] = (),
    weight_bits: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
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
        check: samples to try the result on, as of `quantize`; or an onnxq.Check, whose bound needs
            some.
        exclude: names or globs of nodes that stay in float, whatever the spec says.
        weight_bits: 2, 4 or 8, as of `quantize`.
        shapes: {input name: sizes} that are to be expected where the model leaves some open, which
            decides where integers pay. None: those of the first sample to check on; without
            samples, batch 1, length 64 (docs/guides/dynamic.md).
    Raises:
        ModelError: the model is unreadable, quantized already, of a refused type or opset, or has
            NaN or Inf in a weight; ONNX Runtime does not run it.
        NothingQuantizedError: it has no weights to quantize.
        CalibrationError: unusable samples.
        VerificationError: an output is below the check's bound; the error has the verdict.
        QConfigError: the spec, dtype, target or objective names what is not there, the spec has an
            entry for the nodes that the dtype is for, or the bound is no number.
    """
    work, checked = Stopwatch(), Check.of(check)
    source, made = plan_dynamic(
        model,
        qconfig_spec,
        dtype,
        target=target,
        objective=objective,
        check=checked,
        exclude=exclude,
        weight_bits=weight_bits,
        shapes=shapes,
    )
    validation = dynamic_validation(source, checked, work, shapes)
    tried = make_and_repair(source, made, validation, checked)
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
    check: object = Check.CALIBRATION,
    exclude: Collection[str] = (),
    weight_bits: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[ir.Model, DynamicPlan]:
    """(canonical float model, what `quantize_dynamic` would do with it); arguments as there."""
    aim, mapping = as_objective(objective), mapping_of(qconfig_spec, dtype)
    mapping = replace(mapping, nodes=excluding(mapping.nodes, exclude))
    if weight_bits is not None:
        mapping = mapping.set_weight_bits(weight_bits)
    beside = [] if dtype is None else notes_on_dtype(mapping, as_dtype(dtype))
    chosen = targets.resolve(target)
    child.begin()  # gets ready while the model is looked at
    canonical = canonicalize(load(model), types_by_run)
    notes = (*canonical.notes, *check_names(canonical.model, mapping), *beside)
    sample = first_unseen(canonical.model, Check.of(check))
    sizes = expected_sizes(canonical.model, shapes or {}, sample)
    made = dynamic_plan(canonical.model, mapping, chosen, aim, notes, sizes=sizes)
    check_something(made, canonical.model)
    return canonical.model, made
