"""Samples of a tune: those that candidates are compared on, and those held apart for the goal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import overload

import numpy as np

from onnxq.checking.check import Check
from onnxq.core.arrays import Array
from onnxq.core.memory import bytes_to_keep
from onnxq.errors import CalibrationError, nearest
from onnxq.samples import InputSpec, Samples, as_taken
from onnxq.samples.batches import Batches, crc_of
from onnxq.samples.columns import Column, npz_columns
from onnxq.samples.excerpt import EVERY, held_apart, rows_of
from onnxq.samples.ignored import check_ignored
from onnxq.samples.images import Images
from onnxq.samples.inputs import Batch
from onnxq.samples.items import TENSORS, folder_files
from onnxq.samples.sources import open_samples
from onnxq.samples.tensor_file import tensor_columns

LABELS = "labels"
"""Name of the entry of a tuple that is no input."""
NAMELESS = ""
"""In place of a name, for the inputs of a tuple."""


def open_labelled(samples: object, inputs: Sequence[InputSpec]) -> Batches:
    """Samples of which each batch holds the inputs and every other array; they are in memory."""
    given = Samples.of(samples)
    source = given.source
    if isinstance(source, Batches | Images):
        return _in_memory(open_samples(given, inputs))
    if not isinstance(source, str | Path | Mapping | np.ndarray):
        source = list(_items(source))
    count, known = sum(not s.optional for s in inputs), {spec.name for spec in inputs}
    arrays = {n: x for n, x in _arrays(source, count).items() if n not in given.ignore}
    is_lone = count == len(arrays) == 1  # which is the only input's, whatever its name
    labels = [name for name in arrays if name not in {NAMELESS, *known} and not is_lone]
    specs = [InputSpec(name, _type_of(arrays[name]), None) for name in labels]
    return _in_memory(open_samples(replace(given, source=source), (*inputs, *specs)))


def _items(source: object) -> Iterator[object]:
    """Items of an iterable, of a function that returns one, or of ONNX Runtime's readers."""
    get_next = getattr(source, "get_next", None)
    if callable(get_next):
        yield from iter(get_next, None)
        return
    source = getattr(source, "get_inference_data", source)
    if callable(source) and not isinstance(source, Iterable):
        source = source()
    if not isinstance(source, Iterable):
        raise CalibrationError(
            f"samples are of type {type(source).__name__}; wanted a path, arrays by input name, or "
            "an iterable of batches."
        )
    yield from source


def _arrays(source: object, inputs: int) -> dict[str, object]:
    """Name -> array or column; those of tuples have no name, but for the labels."""
    if isinstance(source, list):
        return _arrays_of_item(source[0], inputs) if source else {}
    if isinstance(source, Mapping):
        return {str(name): x for name, x in source.items()}
    if not isinstance(source, str | Path):
        return {}
    path = Path(source)
    where = f"samples '{path}'"
    if path.is_dir():
        path = folder_files(path, where)[0]
    if path.suffix == ".npy" or not path.is_file():
        return {}  # which `open_samples` refuses in its own words
    read = tensor_columns if path.suffix == TENSORS else npz_columns
    return dict(read(path, where))


def _arrays_of_item(item: object, inputs: int) -> dict[str, object]:
    if isinstance(item, Mapping):
        return {str(name): x for name, x in item.items()}
    if isinstance(item, tuple | list) and len(item) == inputs + 1:
        return {NAMELESS: item[0], LABELS: item[-1]}
    return {}


def _type_of(value: object) -> np.dtype[np.generic]:
    """Type that the value has as an array; a number of Python is float32, as of an input."""
    if isinstance(value, Column):
        return value.dtype
    return np.asarray(value, np.float32 if isinstance(value, float) else None).dtype


def _in_memory(samples: Batches) -> Batches:
    """All batches, read now."""
    most = bytes_to_keep()
    batches: list[Batch] = []
    taken = 0
    for batch in samples:
        batches.append(batch)
        taken += sum(x.nbytes for x in batch.values())
        if taken > most:
            raise CalibrationError(
                f"{samples.where}: the first {len(batches)} batches take {taken / 1e9:.1f} GB, and "
                f"{most / 1e9:.1f} GB may be kept in memory, where every candidate is run on them. "
                "Give fewer; some hundred samples tell candidates apart."
            )
    return Batches(samples.where, len(batches), partial(iter, batches))


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
