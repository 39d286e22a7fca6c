"""Samples of a tune: those that candidates are compared on, and those held apart for the goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from onnxq.errors import CalibrationError, nearest
from onnxq.samples import Batches, as_taken
from onnxq.samples.excerpt import EVERY, held_apart, rows_of
from onnxq.samples.fingerprint import crc_of
from onnxq.samples.ignored import check_ignored
from onnxq.samples.labelled import open_labelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.checking.check import Check
    from onnxq.core.arrays import Array
    from onnxq.samples import InputSpec, Samples
    from onnxq.samples.inputs import Batch


@dataclass(frozen=True, eq=False)
class TuningSamples:
    """Batches of inputs and labels, in memory, which those that they are given to cannot change.

    for batch in samples: ...        {name: read-only array}, inputs and labels
    samples["labels"]                a copy of the whole array, all batches behind each other
    """

    where: str
    batches: tuple[Batch, ...]
    inputs: frozenset[str]

    def __iter__(self) -> Iterator[Batch]:
        return map(_read_only, self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: int) -> Batch: ...
    def __getitem__(self, key: str | int) -> Array | Batch:
        """An array of all samples by its name, or a batch by its number."""
        if isinstance(key, int):
            return _read_only(self.batches[key])
        parts = [batch[key] for batch in self.batches if key in batch]
        if not parts:
            known = list(self.batches[0]) if self.batches else []
            raise CalibrationError(
                f"{self.where}: there is no array '{key}'; there are {', '.join(known)}."
                f"{nearest(key, known)}"
            )
        return np.concatenate([np.atleast_1d(part) for part in parts])

    @property
    def rows(self) -> int:
        """Samples in all."""
        return sum(map(rows_of, map(self.fed, self.batches)))

    def taken_by(self, inputs: Sequence[InputSpec]) -> Batches:
        """The same batches without labels, with numbers as integers where a model takes these."""

        def produce() -> Iterator[Batch]:
            return (as_taken(self.fed(batch), inputs) for batch in self.batches)

        return Batches(self.where, len(self), produce)

    def fed(self, batch: Batch) -> Batch:
        """The arrays of a batch that the model takes."""
        return {name: x for name, x in batch.items() if name in self.inputs}

    def few(self, rows: int) -> TuningSamples:
        """About so many samples, in whole batches that are spread evenly; at least one batch."""
        each = max(1, self.rows // max(len(self), 1))
        count = min(len(self), max(1, -(-rows // each)))
        picked = tuple(self.batches[i * len(self) // count] for i in range(count))
        return TuningSamples(self.where, picked, self.inputs)

    @property
    def fingerprint(self) -> str:
        """CRC-32 of names, shapes and values, with the number of samples."""
        crc = 0
        for batch in self.batches:
            crc = crc_of(batch, crc)
        return f"{self.rows} samples {crc:08x}"


def _read_only(batch: Batch) -> Batch:
    """A batch of its own, which a metric may take labels out of, over the same numbers."""
    views = {name: x.view() for name, x in batch.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def open_tuning_samples(
    samples: Samples, check: Check, inputs: Sequence[InputSpec]
) -> tuple[TuningSamples, TuningSamples]:
    """(samples to search on, samples that choose nothing, on which the goal is checked)."""
    check_ignored(samples, check.unseen)
    opened = open_labelled(samples, inputs)
    if check.unseen is None:
        parts = held_apart(opened, check.hold_apart or EVERY)
    else:
        parts = (opened, open_labelled(check.unseen, inputs))
    names = frozenset(spec.name for spec in inputs)
    search, apart = (TuningSamples(part.where, tuple(part), names) for part in parts)
    return search, apart
