"""Runs the observers over Batches: Prepared + Batches -> Statistics.

Calibration by the workers of an Executor: each observes parts of the samples.

What travels: the Prepared, once to each worker; parts of the samples, as names and rows of files
where they are files (see `Batches.parts`), else by value; back, the Statistics of each part. These
are merged here, in any grouping to the same: the result is that of one run, bit for bit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from onnxq.core.arrays import Array
from onnxq.core.atomic import check_writable
from onnxq.errors import CalibrationError, WorkerError, listed
from onnxq.jobs import in_order, slots
from onnxq.ort.runtime import CPU, check_provider
from onnxq.samples import Batches, Samples, input_specs, open_samples
from onnxq.samples.ignored import check_ignored
from onnxq.samples.shared_out import SamplePart, parts, without_state
from onnxq.shown import shown
from onnxq.static.arguments import check_path, check_prepared, check_progress, check_threads
from onnxq.static.calibration import Calibration, Observed, begun, check_same
from onnxq.static.merging import Merging
from onnxq.static.shard import WHOLE, Shard
from onnxq.static.statistics import Statistics

LOG = logging.getLogger(__name__)


__all__ = ["Calibration", "Checkpoint", "Shard", "Statistics", "calibrate"]

Progress = Callable[[int, int | None], None]
"""progress(batches done, batches in all or None where that is not known)."""


def calibrate(
    prepared: Observed,
    samples: object,
    *,
    statistics: Statistics | None = None,
    first_batch: int | None = None,
    shard: Shard = WHOLE,
    checkpoint: Checkpoint | str | Path | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    provider: str = CPU,
) -> Statistics:
    """Statistics of the samples' activations, added to those of an earlier run where given.

    Args:
        prepared: the model, and the observer of each tensor.
        samples: Samples, or a source alone, such as a path or {input name: array of all samples};
            `onnxq.samples` lists them.
        statistics: what was seen before; it stays as it is.
        first_batch: global number of the samples' first batch; None: `statistics.next_batch`, so
            that the samples come on top. With the number that an interrupted run began with (0),
            the batches that `statistics` has are checked to be the same ones and are not counted
            again.
        shard: the part of the samples to observe; merge the Statistics of all shards afterwards.
        checkpoint: file that keeps what was seen, every minute and at the end. A run that begins
            with one that is there goes on from it, in place of `statistics`: with the same samples,
            the result is that of one run. Delete it when the result is saved.
        progress: called after each batch.
        threads: of one inference; None: one per core, or one in each worker of an executor.
        executor: whose workers run the model, each on parts of the samples; None: this process.
            The result is the same. State that goes round (`prepared.feedback`) cannot be shared
            out: its batches run here, one after the other.
        provider: execution provider of ONNX Runtime that the model runs on.
    Raises:
        CalibrationError: samples that do not suit the model; statistics or a checkpoint of another
            model or other observers; a checkpoint of another shard; a batch that differs from the
            one that they have seen under its number. NaN or Inf in an input; in an activation, they
            make its readers float.
        QConfigError: the samples name a state that the model was not prepared with, the checkpoint
            is no path, the executor no Executor, fewer than 1 thread, or no such provider.
        OutputError: the checkpoint cannot be written.
        WorkerError: workers died, more often than it was tried; the checkpoint has what was seen.
    Warns:
        UserWarning: an executor is given for a model whose state goes round.
    """
    check_prepared(prepared, "calibrate")
    check_progress(progress)
    check_threads(threads)
    check_provider(provider)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        check_path("checkpoint", checkpoint)
        checkpoint = Checkpoint(Path(checkpoint))
    keeper = None if checkpoint is None else Keeper(checkpoint)
    first = first_batch
    if first is None:
        first = statistics.next_batch if statistics else 0
    if keeper is not None:
        shards = {shard, *(statistics.shards if statistics else ())}
        statistics = keeper.load(prepared.model_hash, shards) or statistics
    given = Samples.of(samples).with_feedback(prepared.feedback)
    batches = open_samples(given, input_specs(prepared.model, set(prepared.feedback.values())))
    check_ignored(given)
    before = begun(prepared, statistics, shard)
    job = _Job(prepared, batches, first, shard, before, keeper, progress, provider)
    workers = without_state(executor, prepared.feedback)
    LOG.info("calibrating on %s: %s batches", shown(batches.where), batches.count or "some")
    if workers is None:
        return job.here(threads)
    return job.by_workers(workers, 1 if threads is None else threads)


@dataclass(frozen=True, slots=True)
class _Job:
    """Calibration whose samples are open.

    Attributes:
        first: global number of the first one.
        shard: the part of the batches that is observed.
    """

    prepared: Observed
    samples: Batches
    first: int
    shard: Shard
    before: Statistics
    keeper: Keeper | None
    progress: Progress | None
    provider: str

    def here(self, threads: int | None) -> Statistics:
        """Statistics of the batches, one after the other in this process."""
        opened = partial(Calibration, shard=self.shard, threads=threads, provider=self.provider)
        with opened(self.prepared, self.before) as run:
            for done, batch in enumerate(self.samples, 1):
                number = self.first + done - 1
                if self.shard.has(number) and not run.has_seen(batch, number):
                    run.observe(batch, number)
                elif self.prepared.feedback:
                    run.advance(batch)
                self._note(done, run.statistics)
                LOG.debug("batch %d: observed", number)
            seen = run.statistics()
        self._keep(seen)
        return seen

    def by_workers(self, executor: Executor, threads: int) -> Statistics:
        """Statistics of the batches, observed in parts."""
        merging, done = Merging(), 0
        merging.add(self.before)
        seen = self.before.batches
        known = (
            KnownPart(part, {n: seen[n] for n in part.numbers if n in seen})
            for part in parts(self.samples, slots(executor), self.first)
        )
        work = partial(_observing, self.prepared, self.shard, threads, self.provider)
        try:
            for part in in_order(executor, work, known):
                merging.add(part.statistics)
                done += part.batches
                self._note(done, merging.merged)
        except (WorkerError, KeyboardInterrupt):
            self._keep(merging.merged())  # hours of a cluster's work
            raise
        self._keep(merging.merged())
        return merging.merged()

    def _keep(self, seen: Statistics) -> None:
        if self.keeper is not None:
            self.keeper.keep(seen)

    def _note(self, done: int, statistics: Callable[[], Statistics]) -> None:
        if self.keeper is not None:
            self.keeper.keep_sometimes(statistics)
        if self.progress is not None:
            self.progress(done, self.samples.count)


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of the samples, and what is known of its batches.

    Attributes:
        seen: number -> CRC-32 of those that were observed before.
    """

    part: SamplePart
    seen: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.part)


@dataclass(frozen=True, slots=True)
class Seen:
    """Result of a part."""

    batches: int
    statistics: Statistics


def _observing(
    prepared: Observed, shard: Shard, threads: int, provider: str
) -> Callable[[KnownPart], Seen]:
    """Work of a worker: opens the model once, then gives the Statistics of each part."""
    run = Calibration(prepared, shard=shard, threads=threads, provider=provider)

    def observe(known: KnownPart) -> Seen:
        run.begin_anew()
        for number, batch in zip(known.part.numbers, known.part.samples, strict=True):
            if number in known.seen:
                check_same(batch, number, known.seen[number])
            elif shard.has(number):
                _observe(run, batch, number)
        return Seen(len(known.part.numbers), run.statistics())

    return observe


def _observe(run: Calibration, batch: Mapping[str, Array], number: int) -> None:
    try:
        run.observe(batch, number)
    except CalibrationError as error:
        raise CalibrationError(f"batch {number}: {error}") from error


EVERY_S = 60.0
MOST_OF_THE_TIME = 20  # times what a writing took: it costs at most 5%


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A .stats file that is written every so often.

    Attributes:
        path: of the file.
        every_s: seconds between two writings, at least; more where writing takes long.
    Raises:
        CalibrationError: every_s is negative.
    """

    path: Path
    every_s: float = EVERY_S

    def __post_init__(self) -> None:
        if not self.every_s >= 0:
            raise CalibrationError(
                f"checkpoint '{self.path}': got {self.every_s} seconds between two writings; "
                "wanted 0 or more."
            )


class Keeper:
    """Writes a Checkpoint when it is time to."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        check_writable(checkpoint.path)
        self._checkpoint = checkpoint
        self._due = time.monotonic() + checkpoint.every_s

    def load(self, model_hash: str, shards: Collection[Shard]) -> Statistics | None:
        """Statistics that the file holds; None: there is no file.

        Raises:
            CalibrationError: it is damaged, of another model, or of another shard.
        """
        path = self._checkpoint.path
        if not path.exists():
            return None
        try:
            seen = Statistics.load(path)
            seen.check_model(model_hash)
            _check_shards(seen, shards)
        except CalibrationError as error:
            raise CalibrationError(
                f"checkpoint '{path}': {error} Delete it, or name another file."
            ) from error
        return seen

    def keep_sometimes(self, statistics: Callable[[], Statistics]) -> None:
        """Writes what the function gives, if it is time to."""
        if time.monotonic() >= self._due:
            self.keep(statistics())

    def keep(self, seen: Statistics) -> None:
        """Writes the file, which is there whole or not at all."""
        began = time.monotonic()
        seen.save(self._checkpoint.path)
        took = time.monotonic() - began
        self._due = began + took + max(self._checkpoint.every_s, MOST_OF_THE_TIME * took)


def _check_shards(seen: Statistics, shards: Collection[Shard]) -> None:
    others = seen.shards.difference(shards)
    if others:
        raise CalibrationError(
            f"it is of shard {listed([str(s) for s in sorted(others)])}; this run is of "
            f"{listed([str(s) for s in sorted(shards)])}."
        )
