"""The ten lines that join the stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError
from onnxq.stages.arguments import check_prepared
from onnxq.stages.calibrate import Statistics, calibrate
from onnxq.stages.plan import plan
from onnxq.stages.prepare import ModelSource, Prepared, prepare
from onnxq.stages.rewrite import rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.qconfig import QConfigMapping
    from onnxq.samples import Samples
    from onnxq.targets import Target

    Batch = Mapping[str, npt.NDArray[np.generic]]
    RunFunction = Callable[..., object]


def convert(prepared: Prepared, format: str = "qdq") -> ir.Model:
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
) -> ir.Model:
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

    Raises:
        CalibrationError: neither or both of samples and statistics, or unusable ones.
    """
    if (samples is None) == (statistics is None):
        raise CalibrationError(
            "quantize wants either samples or statistics of an earlier calibration."
        )
    prepared = prepare(model, qconfig, target, feedback)
    if callable(samples):
        samples(prepared, *run_args)
        statistics = prepared.statistics
    elif samples is not None:
        statistics = calibrate(prepared, samples)
    assert statistics is not None
    return rewrite(prepared, plan(prepared, statistics), format)
