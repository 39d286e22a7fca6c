"""Samples that improvements look at, and those that judge them: the last of each four batches."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from onnxq.samples.batches import Batches
from onnxq.samples.excerpt import EVERY, is_last, rows_of
from onnxq.samples.inputs import has_dynamic_batch
from onnxq.times.timed_runs import one_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.samples.inputs import Batch
    from onnxq.static.prepared import Prepared

ENOUGH_SAMPLES = 128
"""Below it, means and covariances of few samples are what improvements fit: said in the report."""
MOST_SAMPLES = 1024
"""More are thinned out, evenly: they are kept in memory, and weights gain no more by them."""


def is_held_back(index: int) -> bool:
    """Whether the batch judges."""
    return is_last(index)


def too_few(batches: Sequence[Batch]) -> str:
    """Reason why none of so few batches can be held back; the empty string: one can."""
    if len(batches) >= EVERY:
        return ""
    return f"{len(batches)} batches of samples: wanted {EVERY} or more, to hold one back to judge"


def enough(samples: Batches, prepared: Prepared) -> list[Batch]:
    """The batches to look at, cut into smaller ones where there are too few to hold some back.

    Args:
        samples: can be gone through twice.
        prepared: has the float model, whose run says whether a batch can be cut. Of state that each
            batch gets from the one before, the first batches are taken, and nothing is cut.
    """
    if prepared.feedback:
        return list(_first(samples))
    batches = list(itertools.islice(samples, 0, None, _stride(samples, MOST_SAMPLES)))
    if not too_few(batches) or not batches or not has_dynamic_batch(prepared.inputs):
        return batches
    if rows_of(one_row(prepared.model, prepared.inputs, batches[0])) > 1:  # a constant fixes it
        return batches
    return [part for batch in batches for part in _cut(batch)]


def _first(samples: Batches) -> Iterator[Batch]:
    """The first batches, MOST_SAMPLES or a few more in all."""
    rows = 0
    for batch in samples:
        yield batch
        rows += rows_of(batch)
        if rows >= MOST_SAMPLES:
            return


def thinned(samples: Batches, most: int) -> Batches:
    """Every n-th batch, so that they have about so many rows at most."""
    stride = _stride(samples, most)
    count = None if samples.count is None else -(-samples.count // stride)
    produce = partial(itertools.islice, samples, 0, None, stride)
    return Batches(samples.where, count, produce)


def _stride(samples: Batches, most: int) -> int:
    """One batch in so many makes about so many rows at most; 1 where that would leave too few."""
    first = next(iter(samples), None)
    if first is None:
        return 1
    count = sum(1 for _ in samples) if samples.count is None else samples.count
    return max(1, min(-(-count * rows_of(first) // most), count // EVERY))


def _cut(batch: Batch) -> list[Batch]:
    """The batch in EVERY pieces of nearly equal length, fewer where it has fewer rows."""
    rows = rows_of(batch)
    edges = [rows * i // min(EVERY, rows) for i in range(min(EVERY, rows) + 1)]
    return [{name: x[a:b] for name, x in batch.items()} for a, b in itertools.pairwise(edges)]
