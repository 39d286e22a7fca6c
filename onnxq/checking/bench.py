"""Times float and quantized model in turns: one thread, CPU time, ratio of medians."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.checking.execution import execution
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.coded import INPUTS_KEY, read_coded
from onnxq.graph.door.scopes import all_tensors
from onnxq.graph.io import load
from onnxq.ort import runtime
from onnxq.ort.timing import paired_times
from onnxq.samples import InputSpec, Samples, as_taken, input_specs, open_samples
from onnxq.samples.made_up import random_batch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from onnxq.checking.findings import Execution
    from onnxq.core.arrays import Array


MILLI = 1e-3
DEFAULT_RUNS = 50


@dataclass(frozen=True)
class Benchmark:
    """A paired measurement.

    Attributes:
        float_ms, quantized_ms: median CPU time of one run, in milliseconds.
        runs: pairs of runs.
        float_bytes, quantized_bytes: sizes, external data included.
        input_shapes: of the batch that was run.
        execution: which nodes of the quantized model run in integers.
    """

    float_ms: float
    quantized_ms: float
    runs: int
    float_bytes: int
    quantized_bytes: int
    input_shapes: Mapping[str, tuple[int, ...]]
    execution: Execution

    @property
    def speedup(self) -> float:
        """Float over quantized: above 1 the quantized model is the faster one."""
        return self.float_ms / self.quantized_ms


def bench(
    model: Path,
    quantized: Path,
    samples: str | Path | Samples | Iterable[Mapping[str, Array]] | None = None,
    *,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
    runs: int = DEFAULT_RUNS,
) -> Benchmark:
    """A Benchmark of two model files on one batch.

    Args:
        model: path of the float model.
        quantized: path of the quantized one.
        samples: their first batch is run; None: random inputs (times hardly depend on values).
        batch_size: rows of the batch; None: the static batch, else 1.
        ignore: names of arrays in the samples that are no inputs.
        runs: pairs of timed runs.
    Raises:
        ModelError: a model cannot be read, or the two have different inputs.
        CalibrationError: unusable samples.
        UnsupportedError: batch_size differs from the model's static batch.
    """
    _check_comparable(model, quantized)
    theirs_takes = input_specs(load(quantized))
    ours_takes = input_specs(load(model), coded={s.name: s.coded for s in theirs_takes if s.coded})
    batch = _one_batch(theirs_takes, samples, batch_size, ignore)
    with (
        runtime.open_session(model, threads=1) as ours,
        runtime.open_session(quantized, threads=1) as theirs,
    ):
        times = paired_times(
            {"float": ours, "quantized": theirs},
            {"float": as_taken(batch, ours_takes), "quantized": batch},
            runs,
        )
    return Benchmark(
        times.median_s("float") / MILLI,
        times.median_s("quantized") / MILLI,
        runs,
        size_bytes(model),
        size_bytes(quantized),
        {name: array.shape for name, array in batch.items()},
        execution(quantized),
    )


def _check_comparable(model: Path, quantized: Path) -> None:
    """Passes two models whose inputs have the same names and types, but for those that are codes.

    Raises:
        ModelError: they have not.
    """
    coded = read_coded(load(quantized), INPUTS_KEY)
    ours, theirs = (
        {s.name: "codes" if s.name in coded else s.dtype for s in input_specs(load(m))}
        for m in (model, quantized)
    )
    if ours != theirs:
        mine, other = (
            ", ".join(f"{name} ({dtype})" for name, dtype in sorted(found.items()))
            for found in (ours, theirs)
        )
        raise ModelError(
            f"the models do not belong together: inputs of '{model}' are {mine}; of '{quantized}' "
            f"{other}."
        )


def size_bytes(path: Path) -> int:
    """Bytes of an ONNX file and of the external data files that it names.

    Raises:
        ModelError: the file cannot be read.
    """
    return sum(p.stat().st_size for p in (path, *external_files(load(path))))


def external_files(model: ir.Model) -> list[Path]:
    """The files that hold tensors of a model, in the order of first use."""
    tensors = [tensor for _, tensor in all_tensors(model)]
    external = [t for t in tensors if isinstance(t, ir.ExternalTensor) and t.size]
    return list(dict.fromkeys(Path(tensor.path) for tensor in external))


def _one_batch(
    inputs: tuple[InputSpec, ...],
    samples: str | Path | Samples | Iterable[Mapping[str, Array]] | None,
    batch_size: int | None,
    ignore: Collection[str],
) -> Mapping[str, Array]:
    if samples is None:
        return random_batch(inputs, batch_size)
    for batch in open_samples(samples, inputs, batch_size, ignore):
        return batch
    raise CalibrationError("the samples hold no batch; give at least one sample.")
