"""Calibration by the workers of an Executor: each observes parts of the samples.

What travels: the Prepared, once to each worker; parts of the samples, as names and rows of files
where they are files (see `Samples.parts`), else by value; back, the Statistics of each part. These
are merged here, in any grouping to the same: the result is that of one run, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError
from onnxq.jobs import in_order, slots
from onnxq.static.calibration import Calibration, check_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Executor

    from onnxq.core.arrays import Array
    from onnxq.samples import Samples
    from onnxq.static.calibration import Observed
    from onnxq.static.shard import Shard
    from onnxq.static.statistics import Statistics

MOST_BATCHES = 16
"""Batches of a part: their statistics are sent and merged once."""
PARTS_EACH = 4
"""Parts for each worker, at least, so that the last ones end at about the same time."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive batches of the samples.

    Attributes:
        first: global number of the first one.
        samples: the batches.
        seen: number -> CRC-32 of those that were observed before.
    """

    first: int
    samples: Samples
    seen: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        last = self.first + (self.samples.count or 1) - 1
        numbers = f"batch {self.first}" if last == self.first else f"batches {self.first} to {last}"
        return f"{self.samples.where}, {numbers}"


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
class Observing:
    """Work of a worker: opens the model once, then gives the Statistics of each part.

    Attributes:
        prepared: the model, and the observer of each tensor.
        shard: the part of the samples that is observed.
        threads: of one inference.
    """

    prepared: Observed
    shard: Shard
    threads: int

    def __call__(self) -> Callable[[Part], Seen]:
        """Function of a part."""
        run = Calibration(self.prepared, shard=self.shard, threads=self.threads)

        def observe(part: Part) -> Seen:
            run.begin_anew()
            number = part.first - 1
            for number, batch in enumerate(part.samples, part.first):
                if number in part.seen:
                    check_same(batch, number, part.seen[number])
                elif self.shard.has(number):
                    _observe(run, batch, number)
            return Seen(number + 1 - part.first, run.statistics())

        return observe


def _observe(run: Calibration, batch: Mapping[str, Array], number: int) -> None:
    try:
        run.observe(batch, number)
    except CalibrationError as error:
        raise CalibrationError(f"batch {number}: {error}") from error


def seen_by_parts(
    executor: Executor, observing: Observing, samples: Samples, first: int, before: Statistics
) -> Iterator[Seen]:
    """What was seen in each part of the samples, in their order.

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
    return in_order(executor, observing, _parts(samples, slots(executor), first, before))


def _parts(samples: Samples, workers: int, first: int, before: Statistics) -> Iterator[Part]:
    """Parts of the samples, in order.

    Args:
        samples: all of them.
        workers: that work at the same time.
        first: global number of the first batch.
        before: what was seen earlier.
    """
    size = MOST_BATCHES
    if samples.count is not None:
        size = max(1, min(size, -(-samples.count // (PARTS_EACH * workers))))
    for part in samples.parts(size):
        count = part.count or 0
        numbers = range(first, first + count)
        seen = {n: before.batches[n] for n in numbers if n in before.batches}
        yield Part(first, part, seen)
        first += count
