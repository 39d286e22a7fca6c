"""Samples from each kind of source: files, folders, arrays, iterables, readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError, kind_of
from onnxq.samples.batches import Batches
from onnxq.samples.columns import memory_column, npy_column, npz_columns
from onnxq.samples.images import Images
from onnxq.samples.inputs import (
    Batch,
    InputSpec,
    as_taken,
    batch_of,
    check_tensors,
    have_batch_axis,
    only_input,
)
from onnxq.samples.items import TENSORS, batches_of_folder, batches_of_iterable, folder_files
from onnxq.samples.samples import Samples
from onnxq.samples.table import samples_of_table
from onnxq.samples.tensor_file import tensor_columns

OF_STATISTICS = frozenset(["header", "batches", "checks", "counts"])
"""Arrays that every .stats file holds (see onnxq.static.statistics)."""


def open_samples(samples: object, inputs: Sequence[InputSpec]) -> Batches:
    """Batches for a model, from Samples or a source alone; Batches stay as they are.

    Inputs that are integers may come as the numbers that these stand for, and numbers as integers.

    Names, dtypes and shapes in files are checked now, values as they are read. A one-shot generator
    can be gone through once.

    Args:
        samples: Samples, or a source that `onnxq.samples` lists.
        inputs: what the model wants; see `input_specs`.

    Raises:
        CalibrationError: a file that is missing or unreadable; no samples; another name, dtype or
            shape than the model's; left-over samples with a static batch. While they are read: NaN,
            Inf.
    """
    given = Samples.of(samples)
    if isinstance(given.source, Batches):
        return given.source
    check_tensors(inputs, "samples")
    opened = _open(given, inputs)
    if all(spec.quantized is None for spec in inputs):
        return opened
    return _taken(opened, inputs)


def _taken(samples: Batches, inputs: Sequence[InputSpec]) -> Batches:
    """The samples in the form that the model takes."""
    cut = samples.cut
    return Batches(
        samples.where,
        samples.count,
        partial(_batches_as_taken, samples, inputs),
        cut and (lambda first, stop: _taken(cut(first, stop), inputs)),
    )


def _batches_as_taken(samples: Batches, inputs: Sequence[InputSpec]) -> Iterator[Batch]:
    return (as_taken(batch, inputs) for batch in samples)


def _open(samples: Samples, inputs: Sequence[InputSpec]) -> Batches:
    """Batches as the source holds them."""
    source, batch_size = samples.source, samples.batch_size
    if isinstance(source, str | Path):
        return _open_path(Path(source), samples, inputs)
    if isinstance(source, Images):
        return _open_iterable(source.arrays(inputs), samples, inputs)
    if isinstance(source, np.ndarray):
        name = only_input(inputs, "samples array").name
        return samples_of_table(
            {name: memory_column(source, "samples array")}, inputs, batch_size, "samples"
        )
    if isinstance(source, Mapping):
        columns = {
            str(name): memory_column(np.asarray(array), f"samples, array '{name}'")
            for name, array in source.items()
            if name not in samples.ignore
        }
        return samples_of_table(columns, inputs, batch_size, "samples")
    return _open_iterable(source, samples, inputs)


def _open_path(path: Path, samples: Samples, inputs: Sequence[InputSpec]) -> Batches:
    where, batch_size, ignore = f"samples '{path}'", samples.batch_size, samples.ignore
    if path.is_dir():
        files = folder_files(path, where)

        def batches(some: Sequence[Path]) -> Batches:
            produce = partial(batches_of_folder, some, samples, inputs, where)
            return Batches(where, _count(len(some), inputs, batch_size, where), produce)

        def cut(first: int, stop: int) -> Batches:
            # other processes may be in another folder
            return batches([file.absolute() for file in files[first:stop]])

        return replace(batches(files), cut=cut)
    if why := why_no_file(path):
        raise CalibrationError(
            f"{where}: {why}. Give an .npz, .npy or .safetensors file, or a folder."
        )
    if path.suffix == ".npy":
        name = only_input(inputs, where).name
        return samples_of_table(
            {name: npy_column(path.absolute(), where)}, inputs, batch_size, where
        )
    if path.suffix == TENSORS:
        mapped = {n: c for n, c in tensor_columns(path, where).items() if n not in ignore}
        return samples_of_table(mapped, inputs, batch_size, where)
    found = npz_columns(path, where)
    if found.keys() >= OF_STATISTICS and not any(s.name in OF_STATISTICS for s in inputs):
        raise CalibrationError(
            f"{where} are statistics of an earlier calibration. Give them in place of samples: "
            "--stats FILE (in Python Statistics.load(path))."
        )
    columns = {n: c for n, c in found.items() if n not in ignore}
    return samples_of_table(columns, inputs, batch_size, where)


def _open_iterable(source: object, samples: Samples, inputs: Sequence[InputSpec]) -> Batches:
    where = "samples"
    produce: Callable[[], Iterable[object]]
    if callable(getattr(source, "get_next", None)):
        produce = _DataReader(source)
    elif callable(transformed := getattr(source, "get_inference_data", None)):
        produce = transformed  # NNCF's Dataset: items as its transform_func gives them
    elif callable(source) and not isinstance(source, Iterable):
        produce = source
    elif isinstance(source, Iterator):
        produce = _Once(source)
    elif isinstance(source, Iterable):
        produce = partial(iter, source)
    else:
        raise CalibrationError(
            f"samples are {kind_of(source)}; wanted a path, arrays by input name, or an "
            "iterable of batches."
        )
    count = _count(_length_of(source), inputs, samples.batch_size, where)
    return Batches(where, count, lambda: batches_of_iterable(produce(), samples, inputs, where))


def _length_of(source: object) -> int | None:
    """Number of items, where the source can tell it; a `__len__` that only raises cannot."""
    if callable(length := getattr(source, "get_length", None)):  # NNCF's Dataset
        found = length()
        return found if isinstance(found, int) else None
    if not isinstance(source, Sized):
        return None
    try:
        return len(source)
    except (TypeError, NotImplementedError):  # DataLoaders of streams, ONNX Runtime's readers
        return None


def _count(
    items: int | None, inputs: Sequence[InputSpec], batch_size: int | None, where: str
) -> int | None:
    """Number of batches in so many items, where each must be one batch."""
    if not have_batch_axis(inputs):
        return items
    return items if batch_of(inputs, batch_size, where) == 1 else None


class _DataReader:
    """ONNX Runtime's CalibrationDataReader, or another object with its get_next.

    Args:
        reader: `get_next()` gives a batch, and None behind the last one; one that is gone through
            twice needs a `rewind()` too.
    """

    def __init__(self, reader: Any) -> None:  # whatever has get_next
        self._reader = reader
        self._is_read = False

    def __call__(self) -> Iterator[object]:
        if self._is_read:
            if not callable(getattr(self._reader, "rewind", None)):
                raise CalibrationError(
                    f"samples: this {type(self._reader).__name__} was gone through already, and "
                    "has no rewind(). Pass a list, or a function that returns a new reader."
                )
            self._reader.rewind()
        self._is_read = True
        while (batch := self._reader.get_next()) is not None:
            yield batch


class _Once:
    """Hands an iterator out once: a second pass over it would silently see nothing."""

    def __init__(self, iterator: Iterator[object]) -> None:
        self._iterator: Iterator[object] | None = iterator

    def __call__(self) -> Iterator[object]:
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            raise CalibrationError(
                "samples: this generator was gone through already. Pass a list, or a function that "
                "returns a new generator."
            )
        return iterator
