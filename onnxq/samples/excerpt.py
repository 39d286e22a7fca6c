"""A few of the batches that pass by, and samples that are held apart."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count

import numpy as np

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, QConfigError, ordinal
from onnxq.samples.batches import Batches
from onnxq.samples.inputs import Batch, InputSpec, has_dynamic_batch

SHARE, ENOUGH = 16, 16
"""One sample in so many is kept, and so many at least where there are. Noise of single samples has
a spread of about its mean m, so that the mean of 16 has one of m / 4: 1 dB."""
MOST_BATCHES = 2 * ENOUGH
MOST_ROWS = 32  # of one batch
MOST_BYTES = 1 << 26


class Excerpt:
    """Batches that were seen, thinned so that those left are evenly spread: bounded in memory.

    Args:
        inputs: of the model; says whether a batch can be cut.
        fed_back: inputs that each batch gets from the one before it; the first batches are kept
            then, since no others can be run.
    Attributes:
        samples: seen in all; a batch without a batch axis counts as one.
    """

    def __init__(self, inputs: Sequence[InputSpec], fed_back: Collection[str] = ()) -> None:
        self.samples = 0
        self._can_be_cut = not fed_back and has_dynamic_batch(inputs)
        self._consecutive = bool(fed_back)
        self._batches: list[Batch] = []
        self._whole: list[Batch] = []
        self._seen = 0
        self._stride = 1

    def watching(self, samples: Batches) -> Batches:
        """The same samples; a few of them are kept as they are read."""

        def produce() -> Iterator[Batch]:
            for batch in samples:
                yield batch
                self.offer(batch)

        return Batches(samples.where, samples.count, produce)

    def offer(self, batch: Mapping[str, Array]) -> None:
        """Counts a batch, and keeps a copy of its first rows if its turn has come."""
        self.samples += rows_of(batch)
        if not self._seen and self._can_be_cut and rows_of(batch) > 1:
            self._whole = [{name: np.array(x) for name, x in batch.items()}]
        is_full = self._consecutive and len(self._batches) < self._seen
        if self._seen % self._stride == 0 and not is_full:
            self._batches.append({k: np.array(x) for k, x in self._cut(batch, MOST_ROWS).items()})
            while self._is_too_much() and len(self._batches) > 1:
                if self._consecutive:
                    self._batches.pop()
                    break
                self._batches = self._batches[::2]
                self._stride *= 2
        self._seen += 1

    def chosen(self) -> list[Batch]:
        """About one sample in SHARE of those seen, ENOUGH at least; empty where none was seen."""
        if not self._batches:
            return []
        wanted = max(min(self.samples, ENOUGH), self.samples // SHARE)
        batches = self._batches if self._consecutive else _different(self._batches)
        count = min(len(batches), -(-wanted // max(1, rows_of(batches[0]))))
        if self._consecutive:
            return batches[:count]
        picked = [batches[i * len(batches) // count] for i in range(count)]
        return [self._cut(batch, -(-wanted // count)) for batch in picked]

    def whole(self) -> list[Batch]:
        """The first batch with all its rows; empty where `chosen` cuts none.

        A model may have the size of its batch in a constant, though the file leaves it open.
        """
        return self._whole

    def _cut(self, batch: Mapping[str, Array], rows: int) -> Batch:
        if not self._can_be_cut or rows_of(batch) <= rows:
            return dict(batch)
        return {name: x[:rows] for name, x in batch.items()}

    def _is_too_much(self) -> bool:
        size = sum(x.nbytes for batch in self._batches for x in batch.values())
        return len(self._batches) > MOST_BATCHES or size > MOST_BYTES


def _different(batches: Sequence[Batch]) -> list[Batch]:
    """The batches, one of each that are equal."""
    found = {tuple(hash(x.tobytes()) for x in batch.values()): batch for batch in reversed(batches)}
    return list(found.values())[::-1]


def rows_of(batch: Mapping[str, Array]) -> int:
    """Samples in a batch: the length that all first axes have; 1 where they differ."""
    lengths = {len(x) if x.ndim else None for x in batch.values()}
    return next(iter(lengths)) or 1 if len(lengths) == 1 else 1


# --- Samples held apart, which choose nothing, so that a result can be checked on them
#
# batch    0 1 2 3 4 5 6 7 8 ...      every = 4
# apart          x       x


EVERY = 4
"""One batch in so many is held apart where the caller names no number."""
HANDFUL = 8
"""Batches from which on some are held apart of themselves, where an algorithm fits samples."""


def every_by_itself(count: int, least: int = HANDFUL) -> int | None:
    """One batch in how many is held apart where nobody said so; None: none."""
    return min(max(count // ENOUGH, EVERY), SHARE) if count >= least else None


def held_apart(samples: Batches, every: int = EVERY) -> tuple[Batches, Batches]:
    """(the others, every n-th batch): the same ones whatever runs on them, and in their order."""
    check_every(every)
    if samples.count is not None and samples.count < every:
        batches = "1 batch" if samples.count == 1 else f"{samples.count} batches"
        raise CalibrationError(
            f"{samples.where}: {batches}, of which every {ordinal(every)} is to be held "
            f"apart for a check; wanted at least {every}. Give more samples, smaller batches, or "
            "others to check on (check=samples, on the command line --check SAMPLES)."
        )
    apart = None if samples.count is None else samples.count // every
    rest = None if samples.count is None or apart is None else samples.count - apart
    return (
        Batches(samples.where, rest, _some(samples, lambda i: not is_held_apart(i, every))),
        Batches(
            f"{samples.where}, every {ordinal(every)}",
            apart,
            _some(samples, lambda i: is_held_apart(i, every)),
        ),
    )


def is_held_apart(number: int, every: int = EVERY) -> bool:
    """Whether a batch judges: the last one of every n."""
    return number % every == every - 1


def check_every(every: object) -> None:
    """Passes whole numbers from 2."""
    if not isinstance(every, int) or isinstance(every, bool) or every < 2:
        raise QConfigError(
            f"hold_apart is {every!r}; wanted a whole number from 2 (4: every fourth batch, a "
            "quarter of the samples)."
        )


def _some(samples: Batches, has: Callable[[int], bool]) -> Callable[[], Iterator[Batch]]:
    """Goes through the batches whose numbers are among them."""

    def produce() -> Iterator[Batch]:
        return (batch for number, batch in zip(count(), samples, strict=False) if has(number))

    return produce
