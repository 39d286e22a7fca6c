"""Models that torchao quantized, on ONNX Runtime: their integers, results, sizes and times.

    python -m benchmarks torchao_models              # three models, some minutes
    python -m benchmarks torchao_models decoder

Each model (benchmarks/parts/torchao_models: a CNN, an encoder and a decoder 256 wide, with random
weights) is quantized by torchao's `quantize_` with each config, and given to `import_quantized`.
Integers: of the weights that torchao quantized, and how many of them are others in the ONNX model.
dB: SQNR of ONNX Runtime's result against torchao's own, and of both against the float model's. MB
is the file's size. Times are CPU ms of one image, of a sentence of 64 tokens, or of one token, on
one thread; torchao eager, as it is, in turns with ONNX Runtime on the float model and on this one.
What torchao or onnxq refuses is in a table of its own, in their words.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names, with_rounds
from benchmarks.harness.table import Missed, Row, Table
from benchmarks.parts.torchao_models import (
    CONFIGS,
    MODELS,
    Config,
    Given,
    build,
    converted,
    differing,
    integers_in,
    integers_of,
    quantized,
)
from onnxq.errors import UnsupportedError
from onnxq.pytorch import import_quantized
from scripts._graphs import proto_of
from scripts._timing import session, taking_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import onnx_ir as ir
    import onnxruntime
    from torch import nn

    Floats = npt.NDArray[np.float32]

MODELS_TABLE = Table(
    "models",
    {
        **{"model": "", "config": "", "layers": "", "integers": ",", "differing": ""},
        **{"dB, ORT to torchao": ".1f", "dB, torchao to float": ".1f", "dB, ORT to float": ".1f"},
        **{"MB": ".2f", "float MB": ".2f"},
        **{"torchao ms": ".2f", "float ORT ms": ".2f", "ORT ms": ".2f"},
    },
    keys=2,
)
REFUSED = Table("refused", {"model": "", "config": "", "by": "", "why": ""}, keys=2)
MB = 1e6


def decibels(wanted: Floats, got: Floats) -> float:
    """SQNR of a result."""
    error = float(np.square(wanted.astype(np.float64) - got).sum())
    signal = float(np.square(wanted.astype(np.float64)).sum())
    return 10 * math.log10(signal / error) if error else math.inf


def result(model: nn.Module, given: Given) -> Floats:
    """Result of torch."""
    with torch.no_grad():
        return model(**given.samples).numpy()  # type: ignore[no-any-return]  # of any module


def runner(model: nn.Module, given: Given) -> Any:
    """A call that runs a module on what is timed."""
    feeds = given.part()

    def run() -> object:
        with torch.inference_mode():
            return model(**feeds)

    return run


def session_runner(opened: onnxruntime.InferenceSession, given: Given) -> Any:
    """A call that runs a session on what is timed."""
    return functools.partial(opened.run, None, {k: x.numpy() for k, x in given.part().items()})


def megabytes(model: ir.Model) -> float:
    """Size of the file."""
    return len(proto_of(model).SerializeToString()) / MB


class Float:
    """A model of the table, its float file, and its results."""

    def __init__(self, name: str) -> None:
        self.name, self.given = name, build(name)
        self.file = onnxq.export(
            self.given.module, self.given.samples, dynamic_axes=self.given.axes
        )
        self.session = session(self.file)
        self.result = result(self.given.module, self.given)

    def row(self, name: str, config: Config, rounds: int) -> Row | Missed:
        """Row of a config: figures, or a refusal."""
        given, is_training = self.given, config.steps == ("prepare",)
        try:
            theirs = quantized(given, config)
        except (ImportError, AssertionError, NotImplementedError, RuntimeError) as error:
            return REFUSED.row(self.name, name, "torchao", first_line(error))
        try:
            file = import_quantized(theirs, given.samples, dynamic_axes=given.axes)
        except UnsupportedError as error:
            return REFUSED.row(self.name, name, "onnxq", str(error))
        opened, found = session(file), integers_in(file)
        wanted = integers_of(converted(theirs, config) if is_training else theirs)
        torchao = result(theirs, given)
        mine = np.asarray(opened.run(None, {k: x.numpy() for k, x in given.samples.items()})[0])
        runs = {
            "torchao": runner(theirs, given),
            "float": session_runner(self.session, given),
            "ort": session_runner(opened, given),
        }
        times = taking_turns(runs, rounds)
        ms = {key: float(np.median(x)) * 1e3 for key, x in times.items()}
        trained = bool(config.steps)  # and hence no rounding of these float weights
        return MODELS_TABLE.row(
            self.name,
            name,
            len(wanted),
            sum(x.size for x in wanted.values()),
            sum(differing(x, found) for x in wanted.values()),
            decibels(torchao, mine),
            None if trained else decibels(self.result, torchao),
            None if trained else decibels(self.result, mine),
            megabytes(file),
            megabytes(self.file),
            None if is_training else ms["torchao"],
            ms["float"],
            ms["ort"],
        )


def first_line(error: Exception) -> str:
    """Message of an error of torchao, without its trace."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


@benchmark(MODELS_TABLE, REFUSED, needs=("torch", "torchao", "transformers"))
@with_rounds(25)
@with_names(MODELS)
def measure(names: Sequence[str], rounds: int) -> Iterator[Row | Missed]:
    """Each config on each model; integers that differ are missed."""
    torch.set_num_threads(1)
    for name in names or MODELS:
        model = Float(name)
        for config, what in CONFIGS.items():
            row = model.row(config, what, rounds)
            yield row
            if isinstance(row, Row) and row.table is MODELS_TABLE and row.cells[4]:
                yield Missed(f"{name}, {config}: {row.cells[4]} integers are not torchao's")
