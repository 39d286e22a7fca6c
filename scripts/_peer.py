"""onnxruntime.quantization, beside which the bench scripts measure."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

if TYPE_CHECKING:
    from collections.abc import Iterable

DYNAMIC_VARIANTS = tuple(
    f"quantize_dynamic {kind} {axis}"
    for kind in ("QInt8", "QUInt8")
    for axis in ("tensor", "channel")
)
"""Names that `dynamic_variants` gives its models."""

Batch = dict[str, npt.NDArray[np.generic]]
# not `from onnxruntime.quantization import quantize`: a function of that name shadows the module
quantize = importlib.import_module("onnxruntime.quantization.quantize")


class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Hands out one batch at a time, as onnxruntime's own examples do."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches = iter(batches)

    def get_next(self) -> Batch | None:
        """The next batch, or None."""
        return next(self.batches, None)


def quantize_static(
    source: Path,
    path: Path,
    batches: Iterable[Batch],
    method: CalibrationMethod = CalibrationMethod.MinMax,
    granularity: str = "per-channel",
    weights: QuantType = QuantType.QInt8,
) -> None:
    """Writes QDQ with uint8 activations, and weights of that type."""
    quantize.quantize_static(
        str(source),
        str(path),
        Reader(batches),
        quant_format=QuantFormat.QDQ,
        per_channel=granularity == "per-channel",
        activation_type=QuantType.QUInt8,
        weight_type=weights,
        calibrate_method=method,
    )


def static_peer(source: Path, path: Path, data: Iterable[Batch]) -> None:
    """quantize_static behind quant_pre_process, or without it where that fails."""
    prepared, source = path.with_suffix(".pre.onnx").resolve(), source.resolve()
    try:
        with contextlib.chdir(prepared.parent):  # where it fails, it leaves files where it runs
            quant_pre_process(str(source), str(prepared))
    except Exception:  # whatever it raises: it fails on 5 of 33
        prepared = source
    quantize_static(prepared, path, data)


def dynamic_peer(source: Path, path: Path) -> None:
    """quantize_dynamic, on the file without what the exporter declares of its weights."""
    model = onnx.load(source)
    weights = {x.name for x in model.graph.initializer}
    kept = [value for value in model.graph.value_info if value.name not in weights]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    quantize.quantize_dynamic(
        model,
        str(path),
        per_channel=True,
        op_types_to_quantize=["MatMul", "Gemm", "Gather", "LSTM", "Attention"],
        extra_options={"MatMulConstBOnly": True},
    )


def dynamic_variants(model: onnx.ModelProto) -> dict[str, onnx.ModelProto]:
    """{name: model} of quantize_dynamic in each of its variants."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "float.onnx"
        onnx.save(model, source)
        for kind in (QuantType.QInt8, QuantType.QUInt8):
            for per_channel in (False, True):
                path = Path(folder) / f"{kind.name}{per_channel}.onnx"
                quantize.quantize_dynamic(source, path, weight_type=kind, per_channel=per_channel)
                name = f"quantize_dynamic {kind.name} {'channel' if per_channel else 'tensor'}"
                made[name] = onnx.load(path)
    return made
