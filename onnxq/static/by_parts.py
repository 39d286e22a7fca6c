"""Calibration by the workers of an Executor: each observes parts of the samples.

What travels: the Prepared, once to each worker; parts of the samples, as names and rows of files
where they are files (see `Batches.parts`), else by value; back, the Statistics of each part. These
are merged here, in any grouping to the same: the result is that of one run, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError
from onnxq.jobs import in_order, slots
from onnxq.samples.shared_out import SamplePart, parts
from onnxq.static.calibration import Calibration, check_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Executor

    from onnxq.core.arrays import Array
    from onnxq.samples import Batches
    from onnxq.static.calibration import Observed
    from onnxq.static.shard import Shard
    from onnxq.static.statistics import Statistics


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of the samples, and what is known of its batches.

    Attributes:
        part: the batches.
        seen: number -> CRC-32 of those that were observed before.
    """

    part: SamplePart
    seen: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.part)


@dataclass(frozen=True, slots=True)
class Seen:
    """Result of a part.

    Attributes:
        batches: that it has.
        statistics: of those that were observed.
    """

    batches: int
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class ObservingWorker:
    """Work of a worker: opens the model once, then gives the Statistics of each part.

    Attributes:
        prepared: the model, and the observer of each tensor.
        shard: the part of the samples that is observed.
        threads: of one inference.
    """

    prepared: Observed
    shard: Shard
    threads: int

    def __call__(self) -> Callable[[KnownPart], Seen]:
        """Function of a part."""
        run = Calibration(self.prepared, shard=self.shard, threads=self.threads)

        def observe(known: KnownPart) -> Seen:
            run.begin_anew()
            for number, batch in zip(known.part.numbers, known.part.samples, strict=True):
                if number in known.seen:
                    check_same(batch, number, known.seen[number])
                elif self.shard.has(number):
                    _observe(run, batch, number)
            return Seen(len(known.part.numbers), run.statistics())

        return observe


def _observe(run: Calibration, batch: Mapping[str, Array], number: int) -> None:
    try:
        run.observe(batch, number)
    except CalibrationError as error:
        raise CalibrationError(f"batch {number}: {error}") from error


def seen_by_parts(
    executor: Executor, observing: ObservingWorker, samples: Batches, first: int, before: Statistics
) -> Iterator[Seen]:
    """Statistics of each part of the samples, in their order.

    Args:
        executor: the workers.
        observing: their work.
        samples: all of them.
        first: global number of the first batch.
        before: what was seen earlier.
    Raises:
        CalibrationError: unusable samples, or a batch that differs from the one that was seen under
            its number; names the part.
        WorkerError: workers died, more often than it was tried.
    """
    known = (
        KnownPart(part, {n: before.batches[n] for n in part.numbers if n in before.batches})
        for part in parts(samples, slots(executor), first)
    )
    return in_order(executor, observing, known)
