"""Work on samples, batch by batch: here, or shared out in parts to the workers of an Executor."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from onnxq.errors import CalibrationError
from onnxq.jobs import in_order, slots
from onnxq.samples.batches import Batches
from onnxq.samples.inputs import Batch

Result = TypeVar("Result")

MOST_BATCHES = 16
"""Batches of a part, whose results travel together."""
PARTS_EACH = 4
"""Parts for each worker, at least, so that the last ones end at about the same time."""

ONE_BY_ONE = (
    "state goes round from each batch to the next one (feedback): the batches run one after the "
    "other, in this process, and the executor has no work."
)


@dataclass(frozen=True, slots=True)
class SamplePart:
    """Consecutive batches of the samples."""

    first: int
    samples: Batches

    @property
    def numbers(self) -> range:
        """Numbers of the batches."""
        return range(self.first, self.first + (self.samples.count or 0))

    def __str__(self) -> str:
        last = self.numbers[-1]
        numbers = f"batch {self.first}" if last == self.first else f"batches {self.first} to {last}"
        return f"{self.samples.where}, {numbers}"


def parts(samples: Batches, workers: int, first: int = 0) -> Iterator[SamplePart]:
    """Parts of the samples, in order."""
    size = MOST_BATCHES
    if samples.count is not None:
        size = max(1, min(size, -(-samples.count // (PARTS_EACH * workers))))
    for each in samples.parts(size):
        part = SamplePart(first, each)
        yield part
        first = part.numbers.stop


def without_state(executor: Executor | None, feedback: Mapping[str, str]) -> Executor | None:
    """The executor, unless state goes round: such batches cannot be shared out.

    Warns:
        UserWarning: it has no work for that reason.
    """
    if executor is None or not feedback:
        return executor
    warnings.warn(ONE_BY_ONE, UserWarning, stacklevel=3)
    return None


def over_batches(
    executor: Executor | None,
    here: Callable[[], Callable[[Batch], Result]],
    away: Callable[[], Callable[[Batch], Result]],
    samples: Batches,
    progress: Callable[[int, int | None], None] | None,
) -> Iterator[Result]:
    """Result of each batch, in order, by workers of the executor; None: this process."""
    done = 0
    for result in _results(executor, here, away, samples):
        done += 1
        yield result
        if progress is not None:
            progress(done, samples.count)
    if not done:
        raise CalibrationError(f"{samples.where} hold no batch; give at least one sample.")


def _results(
    executor: Executor | None,
    here: Callable[[], Callable[[Batch], Result]],
    away: Callable[[], Callable[[Batch], Result]],
    samples: Batches,
) -> Iterator[Result]:
    if executor is None:
        yield from map(here(), samples)
        return
    for results in in_order(executor, partial(_over_parts, away), parts(samples, slots(executor))):
        yield from results


def _over_parts(
    make: Callable[[], Callable[[Batch], Result]],
) -> Callable[[SamplePart], list[Result]]:
    """Work of a worker: the function of a batch, over each batch of a part."""
    function = make()
    return lambda part: [function(batch) for batch in part.samples]
