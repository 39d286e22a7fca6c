"""Samples that an improvement does not see, which judge it: the last of each four batches."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from onnxq.samples.excerpt import rows_of
from onnxq.samples.held_apart import EVERY
from onnxq.samples.inputs import has_dynamic_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnxq.samples import InputSpec
    from onnxq.samples.inputs import Batch

FEW_SAMPLES = 64
"""Below it, means and covariances of few samples are what improvements fit: said in the report."""


def is_held_back(index: int) -> bool:
    """Whether the batch judges."""
    return index % EVERY == EVERY - 1


def enough(
    samples: Iterable[Batch], inputs: Sequence[InputSpec], fed_back: Iterable[str]
) -> list[Batch]:
    """The batches, cut into smaller ones where there are too few to hold some back.

    Args:
        samples: batches.
        inputs: of the model; says whether a batch can be cut.
        fed_back: inputs that each batch gets from the one before: nothing is cut then.
    """
    batches = list(samples)
    if len(batches) >= EVERY or list(fed_back) or not has_dynamic_batch(inputs):
        return batches
    return [part for batch in batches for part in _cut(batch)]


def _cut(batch: Batch) -> list[Batch]:
    """The batch in EVERY pieces of nearly equal length, fewer where it has fewer rows."""
    rows = rows_of(batch)
    edges = [rows * i // min(EVERY, rows) for i in range(min(EVERY, rows) + 1)]
    return [{name: x[a:b] for name, x in batch.items()} for a, b in itertools.pairwise(edges)]
