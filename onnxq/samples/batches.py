"""Samples, and how each kind of source is cut into batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError, kind_of
from onnxq.samples.columns import Column, memory_column, npy_column, npz_columns, whole
from onnxq.samples.inputs import (
    Batch,
    InputSpec,
    are_different_axes,
    as_taken,
    batch_of,
    check_dtype,
    check_finite,
    check_names,
    check_shape,
    check_tensors,
    have_batch_axis,
    only_input,
)
from onnxq.samples.items import batches_of_folder, batches_of_iterable, folder_files

OF_STATISTICS = frozenset(["header", "batches", "checks", "counts"])
"""Arrays that every .stats file holds (see stages.statistics)."""
PART_BYTES = 1 << 23
"""Batches that travel together: enough that a message costs little beside them."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Batches of {input name: array}; every `iter()` begins at the first one again.

    Attributes:
        where: what they are, for messages.
        count: number of batches, where it is known beforehand.
        produce: called once per iteration.
        cut: gives the batches from one number up to another as Samples that can be pickled, and
            read anywhere without those before them; None: the source has no such parts.
        ended: asked before each batch or part, whether these are enough; None: all are wanted.
    """

    where: str
    count: int | None
    produce: Callable[[], Iterator[Batch]]
    cut: Callable[[int, int], Samples] | None = None
    ended: Callable[[], bool] | None = None

    def __iter__(self) -> Iterator[Batch]:
        batches = self.produce()
        ended = self.ended
        return batches if ended is None else itertools.takewhile(lambda _: not ended(), batches)

    def until(self, ended: Callable[[], bool]) -> Samples:
        """The same as long as the function does not say that these are enough."""
        return replace(self, ended=ended)

    def parts(self, size: int) -> Iterator[Samples]:
        """Parts of so many batches in order, each of which can be pickled.

        A part of .npy files is their names and rows; others are their batches, PART_BYTES of them
        and one batch at most. The count of a part is known.
        """
        if self.cut is not None and self.count is not None:
            for first in range(0, self.count, size):
                if self.ended is not None and self.ended():
                    return
                yield self.cut(first, min(first + size, self.count))
            return
        held: list[Batch] = []
        for batch in self:
            held.append(batch)
            if len(held) == size or sum(map(_bytes, held)) >= PART_BYTES:
                yield self._held(held)
                held = []
        if held:
            yield self._held(held)

    def _held(self, batches: Sequence[Batch]) -> Samples:
        return Samples(self.where, len(batches), partial(iter, batches))

    def in_memory(self) -> Samples:
        """All batches, read now, for a source that can be gone through once."""
        return self._held(list(self))


def open_samples(
    source: object,
    inputs: Sequence[InputSpec],
    batch_size: int | None = None,
    ignore: Collection[str] = (),
) -> Samples:
    """Samples for a model, from any source that `onnxq.samples` lists; Samples stay as they are.

    Inputs that are codes may come as the numbers that these stand for, and numbers as codes.

    Names, dtypes and shapes in files are checked now, values as they are read. A one-shot generator
    can be gone through once.

    Args:
        source: path, arrays, iterable, or a function that returns an iterable.
        inputs: what the model wants; see `input_specs`.
        batch_size: samples per batch; None: the model's static batch, else 1.
        ignore: names of arrays that are no inputs (labels).

    Raises:
        CalibrationError: a file that is missing or unreadable; no samples; another name, dtype or
            shape than the model's; left-over samples with a static batch. While they are read: NaN,
            Inf.
    """
    _check_options(batch_size, ignore)
    if isinstance(source, Samples):
        return source
    check_tensors(inputs, "samples")
    opened = _open(source, inputs, batch_size, ignore)
    if all(spec.coded is None for spec in inputs):
        return opened
    return _taken(opened, inputs)


def _taken(samples: Samples, inputs: Sequence[InputSpec]) -> Samples:
    """The samples in the form that the model takes."""
    cut = samples.cut
    return Samples(
        samples.where,
        samples.count,
        partial(_batches_as_taken, samples, inputs),
        cut and (lambda first, stop: _taken(cut(first, stop), inputs)),
    )


def _batches_as_taken(samples: Samples, inputs: Sequence[InputSpec]) -> Iterator[Batch]:
    return (as_taken(batch, inputs) for batch in samples)


def _bytes(batch: Batch) -> int:
    return sum(array.nbytes for array in batch.values())


def _open(
    source: object,
    inputs: Sequence[InputSpec],
    batch_size: int | None,
    ignore: Collection[str],
) -> Samples:
    """Samples as the source holds them."""
    if isinstance(source, str | Path):
        return _open_path(Path(source), inputs, batch_size, ignore)
    if isinstance(source, np.ndarray):
        name = only_input(inputs, "samples array").name
        return _table({name: memory_column(source, "samples array")}, inputs, batch_size, "samples")
    if isinstance(source, Mapping):
        columns = {
            str(name): memory_column(np.asarray(array), f"samples, array '{name}'")
            for name, array in source.items()
            if name not in ignore
        }
        return _table(columns, inputs, batch_size, "samples")
    return _open_iterable(source, inputs, batch_size, ignore)


def is_one_shot(source: object) -> bool:
    """Whether the source may be empty when it is gone through a second time."""
    return isinstance(source, Iterator) or callable(getattr(source, "get_next", None))


def _check_options(batch_size: object, ignore: object) -> None:
    """Refuses what is no number and no collection of names: a text would match by its letters."""
    whole = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool)
    if batch_size is not None and not whole:
        raise CalibrationError(
            f"samples: batch size {batch_size!r}; wanted a whole number from 1, or None for the "
            "model's own."
        )
    if isinstance(ignore, str) or not isinstance(ignore, Collection):
        raise CalibrationError(
            f"samples: names to ignore are {ignore!r}; wanted a list of names, such as ['labels']."
        )


def _open_path(
    path: Path, inputs: Sequence[InputSpec], batch_size: int | None, ignore: Collection[str]
) -> Samples:
    where = f"samples '{path}'"
    if path.is_dir():
        files = folder_files(path, where)

        def batches(some: Sequence[Path]) -> Samples:
            produce = partial(batches_of_folder, some, inputs, batch_size, ignore, where)
            return Samples(where, _count(len(some), inputs, batch_size, where), produce)

        def cut(first: int, stop: int) -> Samples:
            # other processes may be in another folder
            return batches([file.absolute() for file in files[first:stop]])

        return replace(batches(files), cut=cut)
    if why := why_no_file(path):
        raise CalibrationError(f"{where}: {why}. Give an .npz or .npy file, or a folder of them.")
    if path.suffix == ".npy":
        name = only_input(inputs, where).name
        return _table({name: npy_column(path.absolute(), where)}, inputs, batch_size, where)
    found = npz_columns(path, where)
    if found.keys() >= OF_STATISTICS and not any(s.name in OF_STATISTICS for s in inputs):
        raise CalibrationError(
            f"{where} are statistics of an earlier calibration. Give them in place of samples: "
            "--stats FILE (in Python statistics=Statistics.load(path))."
        )
    columns = {n: c for n, c in found.items() if n not in ignore}
    return _table(columns, inputs, batch_size, where)


def _open_iterable(
    source: object, inputs: Sequence[InputSpec], batch_size: int | None, ignore: Collection[str]
) -> Samples:
    where = "samples"
    produce: Callable[[], Iterable[object]]
    if callable(getattr(source, "get_next", None)):
        produce = _DataReader(source)
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
    count = _count(_length_of(source), inputs, batch_size, where)
    return Samples(
        where, count, lambda: batches_of_iterable(produce(), inputs, batch_size, ignore, where)
    )


def _length_of(source: object) -> int | None:
    """Number of items, where the source can tell it; a `__len__` that only raises cannot."""
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


def _table(
    columns: Mapping[str, Column],
    inputs: Sequence[InputSpec],
    batch_size: int | None,
    where: str,
) -> Samples:
    """Samples along the first axes of arrays."""
    check_names(columns, inputs, where)
    given = {spec.name: spec for spec in inputs if spec.name in columns}
    specs = {name: spec for name, spec in given.items() if not _is_constant(columns[name], spec)}
    if not specs or (batch_size is None and _is_one_run(columns, specs)):
        return _one_run(columns, given, where)
    constants = {name: columns[name] for name in given.keys() - specs.keys()}
    for name in sorted(constants):
        check_dtype(columns[name].dtype, given[name], _label(columns[name], name))
    columns = {name: columns[name] for name in specs}
    stacked = {name for name, spec in specs.items() if _is_stack(columns[name], spec)}
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
        shape = column.shape[1:] if name in stacked else (batch, *column.shape[1:])
        check_shape(shape, spec, label, f"{column.shape}")
    if total % batch and any(s.static_batch for n, s in specs.items() if n not in stacked):
        raise CalibrationError(
            f"{where}: {total} samples; the model has a static batch of {batch}, which leaves "
            f"{total % batch} over. Give {total - total % batch} samples, or export the model with "
            "a dynamic batch."
        )
    rows = partial(_rows, columns, constants, batch, frozenset(stacked))

    def cut(first: int, stop: int) -> Samples:
        produce = partial(rows, range(first * batch, min(stop * batch, total), batch), total)
        return Samples(where, stop - first, produce)

    count = -(-total // batch)
    by_rows = all(isinstance(column.source, Path) for column in columns.values())
    return replace(cut(0, count), cut=cut if by_rows and not constants else None)


def _is_constant(column: Column, spec: InputSpec) -> bool:
    """Whether the array is one number that every run gets: of rank 0, as the model's input is."""
    return column.shape == () and not spec.shape


def _is_one_run(columns: Mapping[str, Column], specs: Mapping[str, InputSpec]) -> bool:
    """Whether the arrays are whole inputs, whose first axes are different ones."""
    firsts = []
    for name, spec in specs.items():
        shape = columns[name].shape
        if spec.shape is None or not spec.shape or len(shape) != len(spec.shape):
            return False
        firsts.append((spec.shape[0], shape[0]))
    return are_different_axes(firsts)


def _one_run(columns: Mapping[str, Column], specs: Mapping[str, InputSpec], where: str) -> Samples:
    """All arrays as they are, as one batch."""
    for name, spec in specs.items():
        label = _label(columns[name], name)
        check_dtype(columns[name].dtype, spec, label)
        check_shape(columns[name].shape, spec, label, f"{columns[name].shape}")
    return Samples(where, 1, lambda: iter([_whole(columns)]))


def _whole(columns: Mapping[str, Column]) -> Batch:
    """The arrays as they are, which are finite."""
    batch = {name: whole(column) for name, column in columns.items()}
    for name, array in batch.items():
        check_finite(array, _label(columns[name], name), 0)
    return batch


def _label(column: Column, name: str) -> str:
    return column.where if "array" in column.where else f"{column.where}, array '{name}'"


def _is_stack(column: Column, spec: InputSpec) -> bool:
    return spec.shape is not None and len(column.shape) == len(spec.shape) + 1


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
