"""A file of another tool and what `import_qdq` made of it, on the same inputs.

Both round the same tensors by the same scales; sums are added in another order, and biases become
int32. What that can move is less than what the file's own rounding moves:

    rms(result - given) <= rms(given - unrounded) + 1 LSB of the output

with `given` as the file says it, in float32 and without ONNX Runtime's optimizations, and
`unrounded` the same without rounding of activations, ends of ranges kept.
"""

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
import onnx_ir as ir

from onnxq.checking.execution import execution_in
from onnxq.checking.side_by_side import Pair
from onnxq.checking.validation import REFUSALS, RefusalError
from onnxq.checking.validation_run import ComparedOutput
from onnxq.core.arrays import Array
from onnxq.errors import UnsupportedError, VerificationError
from onnxq.graph.saving import saved_bytes
from onnxq.ort import runtime
from onnxq.ort.target_here import target_here
from onnxq.qdq.imported import Clipping, unrounded
from onnxq.qdq.tidy import output_scales
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import GIVEN_FILE, InputSource, Verdict
from onnxq.reference import evaluator
from onnxq.reference.float_nodes import FloatNodes
from onnxq.samples import Samples, input_specs, open_samples
from onnxq.samples.excerpt import rows_of
from onnxq.samples.inputs import Batch
from onnxq.samples.made_up import random_batch
from onnxq.times.timed_runs import time_beside_float

FLOAT_SUMS = 1e-4
"""Relative rms that another order of float32 sums moves, where no activation is rounded."""
MOST_BATCHES = 32
"""Batches of the samples that both are run on."""
TIMED_S = 0.2
"""CPU seconds of the runs that tell the speed."""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs that both are run on.

    Attributes:
        batches: each run alone.
        source: what they are.
    """

    batches: Sequence[Batch]
    source: InputSource

    @classmethod
    def of(cls, samples: object, model: ir.Model, source: InputSource) -> Self:
        """The first batches of samples, which are this source; without any, made-up inputs."""
        specs = input_specs(model)
        if samples is not None:
            batches = itertools.islice(open_samples(Samples.of(samples), specs), MOST_BATCHES)
            return cls(tuple(batches), source)
        try:
            return cls((random_batch(specs),), InputSource.MADE_UP)
        except UnsupportedError:  # sequences, or too large
            return cls((), InputSource.NONE)


class Rounds(enum.Enum):
    """Tensors that the result rounds, beside those of the file."""

    AS_GIVEN = "the same tensors by the same scales"
    MORE = "more tensors"


def beside_given(
    given: ir.Model, made: QuantizedModel, inputs: Inputs, size: int, rounds: Rounds
) -> Verdict:
    """Verdict on a model beside the file that it was made from."""
    names, batches = [str(value.name) for value in given.graph.outputs], inputs.batches
    session, optimized = _opened(made, batches)
    plain = partial(runtime.open_session, threads=1, optimization=runtime.Optimization.NONE)
    sums = _Sums(made, names)
    clipped, _ = unrounded(given, Clipping.ALL)
    with session, plain(given) as as_said, plain(clipped) as free:
        for batch in batches:
            sums.add(batch, as_said.run(batch, names), free.run(batch, names), session)
    notes = sums.check() if rounds is Rounds.AS_GIVEN else []
    runs = execution_in(made, optimized)
    outputs = [output.verdict() for output in sums.outputs]
    return Verdict(
        input_source=inputs.source,
        samples=sum(map(rows_of, batches)),
        samples_in_all=sum(map(rows_of, batches)),
        outputs=tuple(output for output in outputs if output is not None),
        collapse=None,
        speedup=_speedup(given, made, batches[-1]) if batches else None,
        float_bytes=size,
        quantized_bytes=saved_bytes(made),
        integer_nodes=sum(runs.integer_nodes.values()),
        float_nodes=sum(runs.float_nodes.values()),
        notes=tuple(notes),
        beside=GIVEN_FILE,
    )


def _opened(made: QuantizedModel, batches: Sequence[Batch]) -> tuple[runtime.Session, ir.Model]:
    try:
        session, optimized = runtime.open_with_graph(made)
        for batch in batches:
            session.prove(batch)
    except REFUSALS as error:
        raise RefusalError(error, None) from error
    return session, optimized


def _speedup(given: ir.Model, made: ir.Model, batch: Batch) -> float | None:
    """Time of the file over that of the result; None: ONNX Runtime does not run the file."""
    try:
        return 1 / time_beside_float(given, made, batch, TIMED_S).ratio
    except REFUSALS:
        return None


@dataclass(slots=True)
class _Moved:
    """Sums of squares of one output: of the result's difference, of what rounding moves, of it."""

    difference: float = 0.0
    rounding: float = 0.0
    power: float = 0.0
    elements: int = 0

    def add(self, given: Array, free: Array, result: Array) -> None:
        x, y, z = (np.asarray(a, np.float64) for a in (given, free, result))
        self.difference += float(np.square(z - x).sum())
        self.rounding += float(np.square(y - x).sum())
        self.power += float(np.square(x).sum())
        self.elements += x.size

    def excess(self, lsb: float) -> float:
        """Root mean square of the difference over the bound; at most 1 is within it."""
        count = max(self.elements, 1)
        rms = [float(np.sqrt(total / count)) for total in (self.difference, self.rounding)]
        bound = rms[1] + lsb + FLOAT_SUMS * float(np.sqrt(self.power / count))
        return rms[0] / bound if bound else float(rms[0] > 0)


@dataclass(slots=True)
class _Sums:
    """Comparison of all outputs, on this machine's kernels and on exact ones."""

    made: QuantizedModel
    names: list[str]
    outputs: list[ComparedOutput] = field(default_factory=list)
    moved: list[_Moved] = field(default_factory=list)
    seen: list[tuple[Batch, list[Array], list[Array]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outputs = [ComparedOutput(Pair(n, n, n, None)) for n in self.names]
        self.moved = [_Moved() for _ in self.names]

    def add(
        self, batch: Batch, given: list[Array], free: list[Array], session: runtime.Session
    ) -> None:
        """Runs the result on one batch."""
        self.seen.append((batch, given, free))
        for index, result in enumerate(session.run(batch, self.names)):
            self.outputs[index].update(given[index], result)
            _add(self.moved[index], given[index], free[index], result)

    def check(self) -> list[str]:
        """Notes; raises VerificationError where the result leaves the bound in exact sums, too."""
        worst = self._worst(self.moved)
        if worst is None:
            return []
        exact = [_Moved() for _ in self.names]
        run = evaluator(self.made, float_nodes=FloatNodes(self.made))
        for batch, given, free in self.seen:
            for index, result in enumerate(run.run(self.names, dict(batch))):
                _add(exact[index], given[index], free[index], np.asarray(result))
        again = self._worst(exact)
        if again is None:
            return [
                f"on this machine ({target_here().name}) pairs of products saturate in int16, and "
                f"move output '{worst[0]}' {worst[1]:.1f} times as far as the file's own rounding; "
                "in exact sums the result is that of the file. For this machine, use --target "
                "portable"
            ]
        raise VerificationError(
            f"output '{again[0]}' of the result is {again[1]:.1f} times as far from the given "
            "file's as the file's own rounding moves it, so that they do not compute the same. "
            "Please report the file; it runs as it is."
        )

    def _worst(self, moved: Sequence[_Moved]) -> tuple[str, float] | None:
        scales = {name: scale or 0.0 for name, scale in output_scales(self.made)}
        found = {n: m.excess(scales.get(n, 0.0)) for n, m in zip(self.names, moved, strict=True)}
        name = max(found, key=lambda n: found[n])
        return None if found[name] <= 1 else (name, found[name])


def _add(moved: _Moved, given: Array, free: Array, result: Array) -> None:
    """Adds the numbers of one output; indices and texts are no numbers that rounding moves."""
    if given.dtype.kind == "f" and given.shape == free.shape == result.shape:
        moved.add(given, free, result)
