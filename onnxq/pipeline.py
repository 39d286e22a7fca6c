"""The ten lines that join the stages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxq import targets
from onnxq.dynamic.dynamic_decision import Objective, as_objective
from onnxq.dynamic.dynamic_plan import dynamic_plan
from onnxq.dynamic.requests import check_something, notes_on_dtype, nothing_quantized
from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.dynamic.spec import as_dtype, check_names, mapping_of
from onnxq.errors import CalibrationError
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.ort import runtime
from onnxq.static.arguments import check_prepared
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.observed_range import plan_observed
from onnxq.static.plan import plan
from onnxq.static.prepare import ModelSource, Prepared, prepare
from onnxq.static.rewrite import rewrite
from onnxq.targets.range_reduction import RangeReduction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.dtypes import QDType
    from onnxq.dynamic.dynamic_decision import DynamicPlan
    from onnxq.dynamic.spec import DynamicSpec
    from onnxq.qconfig import QConfigMapping
    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.samples import Samples
    from onnxq.targets import Target

    Batch = Mapping[str, npt.NDArray[np.generic]]
    RunFunction = Callable[..., object]


def convert(prepared: Prepared, format: str = "qdq") -> QuantizedModel:
    """The quantized model, from what `prepared.run` has observed: plan and rewrite in one.

    Raises:
        CalibrationError: nothing was observed yet.
    """
    check_prepared(prepared, "convert")
    return rewrite(prepared, plan(prepared, prepared.statistics), format)


def quantize(
    model: ModelSource,
    samples: str | Path | Samples | Batch | Iterable[Batch] | RunFunction | None = None,
    run_args: Iterable[object] = (),
    *,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
    format: str = "qdq",
    statistics: Statistics | None = None,
    feedback: Mapping[str, str] | None = None,
    objective: Objective | str = Objective.SPEED,
    range_reduction: RangeReduction | str | None = None,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
) -> QuantizedModel:
    """Prepare, calibrate, plan, rewrite: the quantized model.

    Args:
        model: path, ModelProto or onnx_ir.Model of the float model; it is not changed.
        samples: what to calibrate on: a file or folder, {input name: array of all samples}, batches
            of that form; or a function that is called with a Prepared and run_args and
            calls prepared.run(batch), as PyTorch documents quantize(model, run_fn, run_args).
        run_args: for a run function.
        qconfig: what to quantize and how; None: onnxq's default.
        target: the machine that the result is for; None: `targets.get_default()`.
        format: see `rewrite`.
        statistics: of an earlier calibration, in place of samples.
        feedback: {output name: input name} of state that each batch hands to the next one.
        objective: of nodes with a QConfigDynamic, which are quantized dynamically; see
            `quantize_dynamic`.
        range_reduction: where weights give up range so that pairs of products fit int16:
            "worst-case", "everywhere", or "observed", which is exact on the samples alone and needs
            them; None: the target's own. See onnxq.targets.range_reduction.
        batch_size: samples per run; None: the model's static batch, else 1.
        ignore: names of arrays in the samples that are no inputs (labels).

    Raises:
        CalibrationError: neither or both of samples and statistics, or unusable ones.
    """
    if (samples is None) == (statistics is None):
        raise CalibrationError(
            "quantize wants either samples or statistics of an earlier calibration."
        )
    aim = as_objective(objective)
    prepared = prepare(model, qconfig, target, feedback, range_reduction)
    observed = prepared.target.range_reduction is RangeReduction.OBSERVED
    if callable(samples):
        samples(prepared, *run_args)
        statistics = prepared.statistics
    elif samples is not None:
        if observed and isinstance(samples, Iterator):
            samples = list(samples)  # they are run more than once
        statistics = calibrate(prepared, samples, batch_size=batch_size, ignore=ignore)
    assert statistics is not None
    if observed and samples is not None and not callable(samples):
        made = plan_observed(
            prepared, statistics, samples, aim, batch_size=batch_size, ignore=ignore
        )
        return rewrite(prepared, made, format)
    return rewrite(prepared, plan(prepared, statistics, aim), format)


def quantize_dynamic(
    model: ModelSource,
    qconfig_spec: DynamicSpec = None,
    dtype: QDType | str | None = None,
    *,
    target: str | Target | None = None,
    objective: Objective | str = Objective.SPEED,
) -> QuantizedModel:
    """The model with its weights quantized ahead of time, activations when it runs: no data needed.

    Args:
        model: path, ModelProto or onnx_ir.Model of the float model; it is not changed.
        qconfig_spec: what to quantize: None: every operator that has a dynamic form; a set of op
            types; {op type, node name or glob: QConfigDynamic, or None for float}; or a
            QConfigMapping, which says everything.
        dtype: of the weights where the spec does not say it: qint8 or float16; None: qint8.
        target: the machine that the result is for; None: `targets.get_default()`.
        objective: "speed" leaves in float what the target's measurements say would be slower
            (with a UserWarning where that is everything); "size" quantizes every weight.

    Raises:
        ModelError: the model is unreadable, quantized already, of a refused type or opset, has no
            weights to quantize, or has NaN or Inf in one.
        QConfigError: the spec, dtype, target or objective names what is not there, or the spec has
            an entry for the nodes that the dtype is for.
    """
    source, made = plan_dynamic(model, qconfig_spec, dtype, target=target, objective=objective)
    if made.slower and not made.quantized:
        warnings.warn(nothing_quantized(made.target), UserWarning, stacklevel=2)
    return rewrite_dynamic(source, made, made.model_hash)  # just planned from it


def plan_dynamic(
    model: ModelSource,
    qconfig_spec: DynamicSpec = None,
    dtype: QDType | str | None = None,
    *,
    target: str | Target | None = None,
    objective: Objective | str = Objective.SPEED,
) -> tuple[ir.Model, DynamicPlan]:
    """(canonical float model, what `quantize_dynamic` would do with it); arguments as there.

    Raises:
        ModelError, QConfigError: as there.
    """
    aim, mapping = as_objective(objective), mapping_of(qconfig_spec, dtype)
    beside = [] if dtype is None else notes_on_dtype(mapping, as_dtype(dtype))
    chosen = targets.resolve(target)
    canonical = canonicalize(load(model), runtime.infer_types)
    notes = (*canonical.notes, *check_names(canonical.model, mapping), *beside)
    made = dynamic_plan(canonical.model, mapping, chosen, aim, notes)
    check_something(made, canonical.model)
    return canonical.model, made
