"""Samples from each kind of source: files, folders, arrays, iterables, readers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError, kind_of
from onnxq.samples.batches import Batches
from onnxq.samples.columns import Column, array_of, memory_column, npy_column, npz_columns, whole
from onnxq.samples.images import SUFFIXES, Images
from onnxq.samples.inputs import (
    Batch,
    InputSpec,
    are_different_axes,
    as_taken,
    batch_of,
    by_input,
    check_dtype,
    check_finite,
    check_shape,
    check_tensors,
    have_batch_axis,
    only_input,
)
from onnxq.samples.items import TENSORS, batches_of_folder, batches_of_iterable, folder_files
from onnxq.samples.samples import Samples
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
        lambda: (as_taken(batch, inputs) for batch in samples),
        cut and (lambda first, stop: _taken(cut(first, stop), inputs)),
    )


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
            str(name): memory_column(array_of(x, where), where)
            for name, x in source.items()
            if name not in samples.ignore and (where := f"samples, array '{name}'")
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
    if why := why_no_file(path) or "it is an image" * (path.suffix.lower() in SUFFIXES):
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


# --- Samples along the first axes of arrays, in memory or in files


def samples_of_table(
    columns: Mapping[str, Column], inputs: Sequence[InputSpec], batch_size: int | None, where: str
) -> Batches:
    """Samples along the first axes of arrays.

    Args:
        columns: array of each input, (samples, ...); of rank 0, or the whole of an input of rank 0,
            it is given to every run. An array with one axis more than its input is a stack of
            whole inputs.
        inputs: those of the model.
        batch_size: samples of a run; None: the model's, or one.
        where: what the arrays are read from, for messages.
    """
    columns = by_input(columns, inputs, where)
    given = {spec.name: spec for spec in inputs if spec.name in columns}
    # an array of rank 0, as the model's input is, is one number that every run gets
    specs = {name: spec for name, spec in given.items() if spec.shape or columns[name].shape}
    if not specs or (batch_size is None and _is_one_run(columns, specs)):
        return _one_run(columns, given, where)
    constants = {name: columns[name] for name in given.keys() - specs.keys()}
    for name in sorted(constants):
        check_dtype(columns[name].dtype, given[name], _label(columns[name], name))
    columns = {name: columns[name] for name in specs}
    ranks = {name: len(spec.shape) for name, spec in specs.items() if spec.shape is not None}
    stacked = {name for name, rank in ranks.items() if len(columns[name].shape) == rank + 1}
    total = _length(columns, where)
    batch = batch_of([s for n, s in specs.items() if n not in stacked], batch_size, where)
    if stacked and batch != 1:
        raise CalibrationError(
            f"{where}: array '{min(stacked)}' is a stack of whole inputs, which run one by one; "
            f"the batch size is {batch}. Leave the stacking axis out, or the batch size."
        )
    for name, spec in specs.items():
        column = columns[name]
        label = _label(column, name)
        check_dtype(column.dtype, spec, label)
        as_is = name in stacked or len(column.shape) != len(spec.shape or column.shape)
        shape = column.shape[name in stacked :] if as_is else (batch, *column.shape[1:])
        check_shape(shape, spec, label, f"{column.shape}")
    if any(s.static_batch for n, s in specs.items() if n not in stacked):
        _check_whole_batches(total, batch, where)
    rows = partial(_rows, columns, constants, batch, frozenset(stacked))

    def cut(first: int, stop: int) -> Batches:
        produce = partial(rows, range(first * batch, min(stop * batch, total), batch), total)
        return Batches(where, stop - first, produce)

    count = -(-total // batch)
    by_rows = all(isinstance(column.source, Path) for column in columns.values())
    return replace(cut(0, count), cut=cut if by_rows and not constants else None)


def _check_whole_batches(total: int, batch: int, where: str) -> None:
    if total % batch:
        raise CalibrationError(
            f"{where}: {total} samples; the model has a static batch of {batch}, which leaves "
            f"{total % batch} over. Give {total - total % batch} samples, or export the model with "
            "a dynamic batch."
        )


def _is_one_run(columns: Mapping[str, Column], specs: Mapping[str, InputSpec]) -> bool:
    """Whether the arrays are whole inputs, whose first axes are different ones."""
    firsts = []
    for name, spec in specs.items():
        shape = columns[name].shape
        if spec.shape is None or not spec.shape or len(shape) != len(spec.shape):
            return False
        firsts.append((spec.shape[0], shape[0]))
    return are_different_axes(firsts)


def _one_run(columns: Mapping[str, Column], specs: Mapping[str, InputSpec], where: str) -> Batches:
    """All arrays as they are, as one batch."""
    for name, spec in specs.items():
        label = _label(columns[name], name)
        check_dtype(columns[name].dtype, spec, label)
        check_shape(columns[name].shape, spec, label, f"{columns[name].shape}")
    return Batches(where, 1, lambda: iter([_whole(columns)]))


def _whole(columns: Mapping[str, Column]) -> Batch:
    """The arrays as they are, which are finite."""
    batch = {name: whole(column) for name, column in columns.items()}
    for name, array in batch.items():
        check_finite(array, _label(columns[name], name), 0)
    return batch


def _label(column: Column, name: str) -> str:
    return column.where if "array" in column.where else f"{column.where}, array '{name}'"


def _length(columns: Mapping[str, Column], where: str) -> int:
    lengths = {}
    for name, column in columns.items():
        if not column.shape:
            raise CalibrationError(
                f"{where}: array '{name}' is a single number; its first axis must be the samples. "
                "Only an input that is a number in the model may be one for all runs."
            )
        lengths[name] = column.shape[0]
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"'{name}' {length}" for name, length in lengths.items())
        raise CalibrationError(
            f"{where}: arrays have different numbers of samples ({listed}); wanted equal ones. "
            "Where the first axis is no axis of samples, give whole inputs, one run each: as items "
            "of a list or files of a folder, or stacked along a new first axis."
        )
    total = next(iter(lengths.values()), 0)
    if total == 0:
        raise CalibrationError(f"{where}: no samples. Give at least one; 100 to 500 are usual.")
    return total


def _rows(
    columns: Mapping[str, Column],
    constants: Mapping[str, Column],
    batch: int,
    stacked: frozenset[str],
    firsts: range,
    total: int,
) -> Iterator[Batch]:
    """Batches that begin at these rows."""
    same = _whole(constants)
    with ExitStack() as stack:
        readers = {n: stack.enter_context(column.open()) for n, column in columns.items()}
        for reader in readers.values():
            reader.skip(firsts.start)
        for first in firsts:
            size = min(batch, total - first)
            result = dict(same)
            for name, reader in readers.items():
                array = reader.rows(size)
                check_finite(array, _label(columns[name], name), first)
                result[name] = array[0, ...] if name in stacked else array
            yield result
