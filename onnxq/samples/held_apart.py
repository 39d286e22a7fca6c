"""Samples held apart, which choose nothing, so that a result can be checked on them.

batch    0 1 2 3 4 5 6 7 8 ...      every = 4
apart          x       x
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError, QConfigError, ordinal
from onnxq.samples.batches import Batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxq.samples.inputs import Batch

EVERY = 4
"""One batch in so many is held apart where the caller names no number."""


def held_apart(samples: Batches, every: int = EVERY) -> tuple[Batches, Batches]:
    """(the others, every n-th batch): the same ones whatever runs on them, and in their order.

    Args:
        samples: can be gone through again and again.
        every: n, at least 2.

    Raises:
        QConfigError: n is below 2.
        CalibrationError: there are fewer than n batches.
    """
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
        Batches(samples.where, rest, _some(samples, lambda i: not is_last(i, every))),
        Batches(
            f"{samples.where}, every {ordinal(every)}",
            apart,
            _some(samples, lambda i: is_last(i, every)),
        ),
    )


def is_last(number: int, every: int = EVERY) -> bool:
    """Whether a batch is the last one of its n, which is held apart."""
    return number % every == every - 1


def check_every(every: object) -> None:
    """Passes whole numbers from 2.

    Raises:
        QConfigError: it is something else.
    """
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
