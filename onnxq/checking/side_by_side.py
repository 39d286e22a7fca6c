"""Float and quantized model on the same batches, tensor beside tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxq.affine import dequantize, quantize
from onnxq.checking.comparison import Comparison, Top1Agreement
from onnxq.checking.divergence import RANK, Divergence
from onnxq.core.arrays import Array, Singles
from onnxq.graph.quantized import QuantizedIO
from onnxq.language.decoder import LOGITS
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.ort.runtime import HoldsSessions
from onnxq.qparams import QParams
from onnxq.quantized.output_parts import PartSums
from onnxq.quantized.output_verdict import OutputPart
from onnxq.samples import as_taken, input_specs
from onnxq.samples.inputs import Batch
from onnxq.samples.state import State

CHANNEL_AXIS = 1
Watch = Callable[[Mapping[str, Array], Mapping[str, Array]], None]


@dataclass(slots=True)
class Sums:
    """Running metrics of one pair of tensors.

    Attributes:
        parts: sums over the slices of an output of floats.
        top1: agreement of rows; of logits, of tokens.
        divergence: of logits of a language model.
        differing: batches in which the shapes differed, so that nothing could be compared.
        integers: of an output of integers or booleans, elements of the longer side.
        equal: those among them that are equal; where shapes differ, none of a batch are.
    """

    compared: Comparison = field(default_factory=Comparison)
    parts: PartSums = field(default_factory=PartSums)
    top1: Top1Agreement = field(default_factory=Top1Agreement)
    divergence: Divergence = field(default_factory=Divergence)
    differing: int = 0
    integers: int = 0
    equal: int = 0

    def add(self, other: Sums) -> None:
        """Adds those of the next batch; batch by batch, so that the order of additions is one."""
        self.compared.add(other.compared)
        self.parts.add(other.parts)
        self.top1.add(other.top1)
        self.divergence.add(other.divergence)
        self.differing += other.differing
        self.integers += other.integers
        self.equal += other.equal

    @property
    def worst_part(self) -> OutputPart | None:
        """The slices of an output that are further from float than the whole, if there are any."""
        return self.parts.worst(self.compared.sqnr_db)

    @property
    def worst_db(self) -> float:
        """SQNR in dB of the worst part, or of the whole where there is none."""
        worst = self.worst_part
        return self.compared.sqnr_db if worst is None else worst.sqnr_db

    @property
    def agreement(self) -> float | None:
        """Share of integers that are equal; None: the output is of floats."""
        return self.equal / self.integers if self.integers else None


@dataclass(slots=True)
class Pair:
    """A tensor under comparison: its name on either side, and its running sums.

    Attributes:
        qparams: of the integers that the quantized side gives; None where it gives numbers.
        channel_scale: factors per channel that the integers carry, and the float tensor gets for
            comparing.
        channels: of the float tensor, where channels of zeros were added; None: none were.
        quantized: numbers that an output's integers stand for; None: it gives numbers.
    """

    name: str
    source: str
    target: str
    qparams: QParams | None
    channel_scale: tuple[float, ...] | None = None
    channels: int | None = None
    quantized: QuantizedIO | None = None
    node: str = ""
    sums: Sums = field(default_factory=Sums)

    def compared(self, x: Array, y: Array) -> Sums:
        """Sums of one batch."""
        sums = Sums()
        y = self.decoded(y)
        if self.channels is not None and y.ndim > CHANNEL_AXIS:
            y = y[:, : self.channels]
        is_alike = x.shape == y.shape
        if self.qparams is None and x.dtype.kind in "biu":
            sums.integers = max(x.size, y.size)
            sums.equal = int(np.count_nonzero(x == y)) if is_alike else 0
        if not is_alike:
            sums.differing = 1
            return sums
        if self.channel_scale is not None:
            x = np.multiply(x, self.channel_scale_of(x), dtype=np.float32)
        sums.compared.update(x, y, self.qparams)
        if self.qparams is None:
            sums.parts.update(x, y)
            if x.ndim == 2 and x.shape[1] > 1:
                sums.top1.update(x, y)
                rows: Any = x
                if (rows >= 0).all() and (np.abs(rows.sum(1) - 1) < 1e-2).all():  # probabilities
                    logs = (np.log(np.maximum(each, LEAST_PROBABILITY)) for each in (x, y))
                    sums.divergence.update(*(each[:, None] for each in logs))
            if self.name == LOGITS and x.ndim == RANK and x.shape[-1] > 1:
                classes = x.shape[-1]
                sums.top1.update(x.reshape(-1, classes), y.reshape(-1, classes))
                sums.divergence.update(x, y)
        return sums

    def decoded(self, y: Array) -> Array:
        """Numbers that an output of the quantized model stands for."""
        return y if self.quantized is None else self.quantized.decode(y)

    def channel_scale_of(self, x: Array) -> Singles:
        """Factors that the integers carry, one per channel of x; a 1 where there are none."""
        if self.channel_scale is None:
            return np.ones(1, np.float32)
        return np.array(self.channel_scale[: self.channels], np.float32).reshape(
            -1, *[1] * (x.ndim - 2)
        )

    def rounded(self, x: Array) -> tuple[Array, Array]:
        """(integers of float values x, the reals that they stand for), both in the shape of x."""
        assert self.qparams is not None
        channel_scale = self.channel_scale_of(x)
        integers = quantize(np.multiply(x, channel_scale, dtype=np.float32), self.qparams)
        return integers, (dequantize(integers, self.qparams) / channel_scale).astype(x.dtype)


LEAST_PROBABILITY = 1 / 512
"""Half an LSB of 8 bits: less is zero in integers, and has no logarithm there."""


class SideBySide(HoldsSessions):
    """Both models with the compared tensors as outputs."""

    def __init__(
        self,
        source: ir.Model,
        target: ir.Model,
        tensors: Sequence[Pair],
        outputs: Sequence[Pair],
        feedback: Mapping[str, str],
        threads: int | None = None,
        provider: str = runtime.CPU,
    ) -> None:
        ours = expose(source, [p.source for p in tensors])
        theirs = expose(target, [p.target for p in tensors])
        self._models = (ours.model, theirs.model)
        self._pairs = [(p, ours.outputs[p.source], theirs.outputs[p.target]) for p in tensors]
        self._pairs += [(p, p.source, p.target) for p in outputs]
        self._feedback = feedback
        self._inputs = input_specs(source, feedback.values())
        self._theirs = input_specs(target)
        self._threads, self._provider = threads, provider

    def open(self, watch: Watch | None = None) -> Callable[[Batch], list[Sums]]:
        """Makes it ready to run; the function of a batch: the Sums of each pair.

        `watch` gets the tensors of each batch by their names, of both models.
        """
        wanted_x = list(dict.fromkeys([*(x for _, x, _ in self._pairs), *self._feedback]))
        wanted_y = list(dict.fromkeys([*(y for _, _, y in self._pairs), *self._feedback]))
        state_x, state_y = (State(self._inputs, self._feedback) for _ in range(2))
        asleep = runtime.Waiting.ASLEEP  # two sessions of spinning threads would take turns
        self._sessions = ()
        for model in self._models:  # kept one by one: the second may be refused
            opened = runtime.open_session(
                model, threads=self._threads, waiting=asleep, provider=self._provider
            )
            self._sessions += (opened,)
        ours, theirs = self._sessions

        def compare(batch: Batch) -> list[Sums]:
            x = ours.run_named(state_x.feeds(batch), wanted_x)
            y = theirs.run_named(as_taken(state_y.feeds(batch), self._theirs), wanted_y)
            state_x.keep(x)
            state_y.keep(y)
            if watch is not None:
                numbers = {pair.name: pair.decoded(y[name]) for pair, _, name in self._pairs}
                watch({pair.name: x[name] for pair, name, _ in self._pairs}, numbers)
            return [pair.compared(x[name_x], y[name_y]) for pair, name_x, name_y in self._pairs]

        return compare
