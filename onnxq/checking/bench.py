"""Times float and quantized model in turns: one thread, CPU time, ratio of medians."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxq.checking.execution import execution
from onnxq.checking.findings import Execution
from onnxq.checking.sides import check_order
from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.given_file import given_size
from onnxq.graph.io import load
from onnxq.graph.quantized import INPUTS_KEY, read_quantized_io
from onnxq.ort import runtime
from onnxq.page.card import card_of
from onnxq.samples import InputSpec, Samples, as_taken, input_specs, open_samples
from onnxq.samples.ignored import check_ignored
from onnxq.samples.made_up import random_batch, with_shapes
from onnxq.samples.samples import without_state
from onnxq.static.prepared import ModelSource
from onnxq.times.timed_runs import WholeTime, paired_sessions

MILLI = 1e-3
DEFAULT_RUNS = 50
_NO_TEXT = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Benchmark:
    """A paired measurement.

    Attributes:
        float_ms, quantized_ms: median CPU time of one run, in milliseconds.
        runs: pairs of runs.
        float_bytes, quantized_bytes: sizes, external data included.
        input_shapes: of the batch that was run.
        execution: which nodes of the quantized model run in integers.
        speed_range: interval of 95% for the speedup, over runs and over sessions.
    """

    float_ms: float
    quantized_ms: float
    runs: int
    float_bytes: int
    quantized_bytes: int
    input_shapes: Mapping[str, tuple[int, ...]]
    execution: Execution
    speed_range: tuple[float, float]

    @property
    def speedup(self) -> float:
        """Float over quantized: above 1 the quantized model is the faster one."""
        return self.float_ms / self.quantized_ms

    def __repr__(self) -> str:
        return (
            f"Benchmark({self.speedup:.2f}x ({self.speed_range[0]:.2f} to "
            f"{self.speed_range[1]:.2f}): {self.float_ms:.3f} ms float, "
            f"{self.quantized_ms:.3f} ms quantized, {self.runs} pairs of runs)"
        )

    _repr_html_ = card_of


def bench(
    model: ModelSource,
    quantized: ModelSource,
    samples: str | Path | Samples | Iterable[Mapping[str, Array]] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    runs: int = DEFAULT_RUNS,
    provider: str = runtime.CPU,
) -> Benchmark:
    """A Benchmark of two models on one batch, run in turns in several sessions, on one thread.

    Args:
        model: the float model: path, ModelProto or onnx_ir.Model.
        quantized: the quantized one, likewise.
        samples: their first batch is run; None, or Samples without a source: random inputs (times
            hardly depend on values).
        shapes: {input name: shape} of random inputs, for those with dynamic sizes beside the batch.
        runs: pairs of timed runs.
        provider: execution provider of ONNX Runtime that both run on.
    Raises:
        ModelError: a model cannot be read, or the two are swapped or have different inputs.
        CalibrationError: unusable samples; samples and shapes; neither, where sizes beside the
            batch are dynamic; shapes that do not fit; or fewer than 1 run.
        QConfigError: samples with state, which goes round from batch to batch; a provider that the
            installed ONNX Runtime does not have.
        UnsupportedError: the batch size differs from the model's static batch.
    """
    if type(runs) is not int or runs < 1:
        raise CalibrationError(f"runs: got {runs!r}; wanted a whole number, 1 or more.")
    runtime.check_provider(provider)
    given = without_state(Samples.of(samples), "bench")
    ours_model, theirs_model = load(model), load(quantized)
    check_order(ours_model, theirs_model)
    _check_comparable((model, ours_model), (quantized, theirs_model))
    theirs_takes = input_specs(theirs_model)
    ours_takes = input_specs(
        ours_model, quantized={s.name: s.quantized for s in theirs_takes if s.quantized}
    )
    if given.source is None:
        specs = with_shapes(theirs_takes, shapes or {}, given.batch_size)
        batch: Mapping[str, Array] = random_batch(specs, given.batch_size)
    else:
        if shapes:
            raise CalibrationError("give samples or shapes, not both: samples have their own.")
        mine, single = {s.name: s.dtype for s in ours_takes}, np.dtype(np.float32)
        takes = tuple(  # float32 where the two have floats of other widths
            s if s.quantized or s.dtype == mine[s.name] else replace(s, dtype=single)
            for s in theirs_takes
        )
        batch = as_taken(_one_batch(given, takes), theirs_takes)
        check_ignored(given)
    sources = (_source(model, ours_model), _source(quantized, theirs_model))
    opened = partial(runtime.open_session, threads=1, provider=provider)
    openers = [partial(opened, source) for source in sources]
    feeds = as_taken(batch, ours_takes), batch
    pairs = paired_sessions((openers[0], openers[1]), feeds, runs)
    ours, theirs = (float(np.median(np.concatenate(side))) for side in zip(*pairs, strict=True))
    found = WholeTime.of_sessions(pairs)
    return Benchmark(
        ours / MILLI,
        theirs / MILLI,
        runs,
        given_size(ours_model),
        given_size(theirs_model),
        {name: array.shape for name, array in batch.items()},
        execution(theirs_model, provider),
        (min(found.low, ours / theirs), max(found.high, ours / theirs)),
    )


def _source(given: ModelSource, model: ir.Model) -> ir.Model | Path:
    """Source that a session is opened with: a file as it is.

    The model, where a name is bytes that are no text: ONNX Runtime takes no such path.
    """
    is_file = isinstance(given, str | Path) and not _NO_TEXT.search(str(given))
    return Path(str(given)) if is_file else model


def _check_comparable(
    ours_given: tuple[ModelSource, ir.Model], theirs_given: tuple[ModelSource, ir.Model]
) -> None:
    """Passes two models whose inputs have the same names and types; floats of any width are one."""
    ints = read_quantized_io(theirs_given[1], INPUTS_KEY)  # in place of floats
    ours, theirs = (
        {s.name: "floats" if s.dtype.kind == "f" or s.name in ints else s.dtype for s in takes}
        for takes in (input_specs(ours_given[1]), input_specs(theirs_given[1]))
    )
    if ours != theirs:
        mine, other = (
            ", ".join(f"{name} ({dtype})" for name, dtype in sorted(found.items()))
            for found in (ours, theirs)
        )
        raise ModelError(
            f"the models do not belong together: inputs of {_named(ours_given[0])} are {mine}; of "
            f"{_named(theirs_given[0])} {other}."
        )


def _named(given: ModelSource) -> str:
    """The model, to speak of it: its file, where it has one."""
    return f"'{given}'" if isinstance(given, str | Path) else "the model in memory"


def _one_batch(samples: Samples, inputs: tuple[InputSpec, ...]) -> Mapping[str, Array]:
    for batch in open_samples(samples, inputs):
        return batch
    raise CalibrationError("the samples hold no batch; give at least one sample.")
