"""A calibration in progress: batch by batch, the observers see what the model computes.

One batch of activations is in memory at a time. Every observed tensor is an output of the model
that runs, and nothing else is: the operators between two of them still fuse, and the run costs
little more than inference. Tensors in branches of If are observed when their branch runs.

State that goes round (`prepared.feedback`: output -> input) is kept between batches: see `state`.
"""

import contextlib
import copy
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, Self

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError
from onnxq.observers import ObserverSpec
from onnxq.ort.expose import expose
from onnxq.ort.runtime import CPU, Memory, Session, Waiting, open_session
from onnxq.samples import input_specs
from onnxq.samples.batches import crc_of
from onnxq.samples.inputs import have_batch_axis
from onnxq.samples.state import State
from onnxq.static.arguments import check_prepared
from onnxq.static.seen_samples import SeenSamples
from onnxq.static.shard import WHOLE, Shard
from onnxq.static.statistics import NotFinite, Statistics


class Observed(Protocol):
    """Parts of a Prepared that calibration reads."""

    @property
    def model(self) -> ir.Model:
        """The canonical float model."""

    @property
    def model_hash(self) -> str:
        """Hash of graph and weights."""

    @property
    def observed(self) -> Mapping[str, ObserverSpec]:
        """Tensor name -> observer."""

    @property
    def probed(self) -> Mapping[str, ObserverSpec]:
        """Tensor name -> observer of what errors become behind it."""

    @property
    def feedback(self) -> Mapping[str, str]:
        """Output name -> input name."""


class Calibration:
    """A calibration in progress: the loop form of `calibrate`, for batches that come one by one.

        with Calibration(prepared) as run:
            for batch in batches:
                run.observe(batch)
            statistics = run.statistics()

    Args:
        prepared: the model, and the observer of each tensor.
        statistics: what was seen before; it stays as it is.
        shard: the part of the samples that the batches are.
        threads: of one inference; None: one per core.
        provider: execution provider that the model runs on.
    Attributes:
        inputs: what batches hold; those that are fed back are optional.
        next_batch: number of the next batch, if `observe` is given none.
    Raises:
        ModelError: `prepared` is something else.
        CalibrationError: the statistics are of another model, or of other observers.
    """

    def __init__(
        self,
        prepared: Observed,
        statistics: Statistics | None = None,
        *,
        shard: Shard = WHOLE,
        threads: int | None = None,
        provider: str = CPU,
    ) -> None:
        check_prepared(prepared, "calibrate")
        self._begun = begun(prepared, statistics, shard)
        self._feedback = prepared.feedback
        self._fed_back = tuple(prepared.feedback)
        self.inputs = input_specs(prepared.model, optional=set(prepared.feedback.values()))
        self.begin_anew()
        sliced = self.inputs if have_batch_axis(self.inputs) else ()
        self._sliced = {spec.name for spec in sliced}
        fed = {spec.name for spec in self.inputs}
        self._looked_at = tuple(dict.fromkeys((*self._observers, *self._watching)))
        inner = [name for name in self._looked_at if name not in fed]
        exposed = expose(prepared.model, inner)
        self._outputs = dict(exposed.outputs)
        self._session: Session = open_session(
            exposed.model,
            threads=threads,
            memory=Memory.ON_DEMAND,
            waiting=Waiting.ASLEEP,
            provider=provider,
        )

    def begin_anew(self) -> None:
        """Forgets all batches but those of the statistics that it began with."""
        start = self._begun
        self._observers = copy.deepcopy(dict(start.observers))
        self._watching = copy.deepcopy(dict(start.probed))
        self._batches = dict(start.batches)
        self._counts = dict(start.counts)
        self._not_finite = dict(start.not_finite)
        self._samples = start.samples
        self._failure: str | None = None
        self._state = State(self.inputs, self._feedback)
        self.next_batch = start.next_batch

    def observe(self, batch: Mapping[str, Array], index: int | None = None) -> None:
        """Runs the model on a batch and shows each observed tensor to its observer.

        Args:
            batch: input name -> array.
            index: global number of the batch; None: the next one.
        Raises:
            CalibrationError: the batch does not suit the model, or its number was seen before; NaN
                or Inf in an input, or a tensor that its observer refuses. After that the run cannot
                go on.
        """
        number = self.next_batch if index is None else index
        self._check_alive()
        if number in self._batches:
            raise CalibrationError(
                f"batch {number} was observed already; give each its own number."
            )
        tensors = self._run(batch)
        for name in self._looked_at:  # by both at once: its values are in the cache
            if name in self._observers:
                self._show(name, tensors[name], number, name in batch)
            if name in self._watching:
                # NaN, Inf and shapes that vary say nothing of errors: calibration goes on
                with contextlib.suppress(CalibrationError):
                    self._watching[name].observe(tensors[name], number)
        for name in self._not_finite:  # as if they had seen nothing, whatever came first
            self._observers[name] = self._observers[name].spec()
        self._batches[number] = crc_of(batch)
        fed = {name: tensors[name] for name in self._feedback.values() if tensors[name].any()}
        self._samples = self._samples.merged(SeenSamples.of({**batch, **fed}, self._sliced))
        self.next_batch = max(self.next_batch, number + 1)

    def _show(self, name: str, x: Array, number: int, is_input: bool) -> None:
        """Shows a tensor to its observer."""
        if x.size == 0:  # a branch that did not run
            return
        self._counts[name] += 1
        if name in self._not_finite:
            return
        try:
            self._observers[name].observe(x, number)
        except CalibrationError as error:
            values = _not_finite(x)
            if is_input or not values:
                self._failure = f"tensor '{name}': {error}"
                raise CalibrationError(self._failure) from error
            self._not_finite[name] = NotFinite(number, values)

    def advance(self, batch: Mapping[str, Array]) -> None:
        """Runs the model on a batch only to bring the fed-back state forward.

        Raises:
            CalibrationError: the batch does not suit the model.
        """
        self._check_alive()
        self._run(batch)

    def has_seen(self, batch: Mapping[str, Array], index: int) -> bool:
        """Whether the batch with this number was observed.

        Raises:
            CalibrationError: one was, but with other values.
        """
        if index not in self._batches:
            return False
        check_same(batch, index, self._batches[index])
        return True

    def statistics(self) -> Statistics:
        """Statistics of the batches so far; later ones do not change them.

        Raises:
            CalibrationError: a batch failed half-way.
        """
        self._check_alive()
        return Statistics(
            self._begun.model_hash,
            MappingProxyType(copy.deepcopy(self._observers)),
            MappingProxyType(dict(sorted(self._batches.items()))),
            MappingProxyType(dict(self._counts)),
            MappingProxyType(dict(sorted(self._not_finite.items()))),
            self._begun.shards,
            self._samples,
            probed=MappingProxyType(copy.deepcopy(self._watching)),
        )

    def close(self) -> None:
        """Frees the model."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise CalibrationError(
                f"this calibration stopped half-way through a batch ({self._failure}). Start "
                "again, from saved statistics if there are any."
            )

    def _run(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """The observed tensors of one batch, inputs included."""
        feeds = self._state.feeds(batch)
        got = self._session.run_named(feeds, (*self._outputs.values(), *self._fed_back))
        self._state.keep(got)
        return feeds | {tensor: got[output] for tensor, output in self._outputs.items()}


def begun(prepared: Observed, statistics: Statistics | None, shard: Shard) -> Statistics:
    """Statistics that a calibration begins with, of the tensors that it observes."""
    if statistics is None:
        return Statistics(
            prepared.model_hash,
            {name: spec() for name, spec in prepared.observed.items()},
            {},
            dict.fromkeys(prepared.observed, 0),
            shards=frozenset([shard]),
            probed={name: spec() for name, spec in prepared.probed.items()},
        )
    statistics.check_model(prepared.model_hash)
    # statistics of before a tensor was watched have nothing to go on
    known = {name: observer.spec for name, observer in statistics.probed.items()}
    return replace(
        statistics,
        observers={n: statistics.observer(n, spec) for n, spec in prepared.observed.items()},
        counts={name: statistics.counts.get(name, 0) for name in prepared.observed},
        shards=statistics.shards | {shard},
        stopped=False,
        probed={
            n: statistics.probed[n] for n, spec in prepared.probed.items() if known.get(n) == spec
        },
    )


def check_same(batch: Mapping[str, Array], index: int, check: int) -> None:
    """Passes a batch whose CRC-32 is that of the one that was seen under its number."""
    if crc_of(batch) != check:
        raise CalibrationError(
            f"batch {index} of the samples is not the batch {index} that the statistics have "
            "seen. To resume, give the same samples and batch size; further samples go after "
            "them, in the same file or folder (or, in Python, without first_batch)."
        )


def _not_finite(x: Array) -> str:
    """How many values are NaN or infinite in float32, and the first; empty where none is."""
    with np.errstate(over="ignore"):
        values = x.astype(np.float32)
    bad = ~np.isfinite(values)
    if not bad.any():
        return ""
    return f"{np.count_nonzero(bad)} of {x.size} values are NaN or infinite, as {values[bad][0]},"
