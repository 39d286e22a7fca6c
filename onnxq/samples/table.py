"""Samples along the first axes of arrays, in memory or in files."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError
from onnxq.samples.batches import Batches
from onnxq.samples.columns import Column, whole
from onnxq.samples.inputs import (
    Batch,
    InputSpec,
    are_different_axes,
    batch_of,
    check_dtype,
    check_finite,
    check_names,
    check_shape,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def samples_of_table(
    columns: Mapping[str, Column],
    inputs: Sequence[InputSpec],
    batch_size: int | None,
    where: str,
) -> Batches:
    """Samples along the first axes of arrays.

    Args:
        columns: array of each input, (samples, ...); of rank 0, or the whole of an input of rank 0,
            it is given to every run. An array with one axis more than its input is a stack of
            whole inputs.
        inputs: those of the model.
        batch_size: samples of a run; None: the model's, or one.
        where: what the arrays are read from, for messages.
    Raises:
        CalibrationError: names, types or shapes that are not the model's; arrays of several
            lengths; samples that do not fill the batches of a static model.
    """
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
