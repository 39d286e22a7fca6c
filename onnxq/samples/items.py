"""Sources that come piece by piece: files of a folder, items of an iterable."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError
from onnxq.samples.columns import array_of, npy_column, npz_columns, whole
from onnxq.samples.images import SUFFIXES
from onnxq.samples.inputs import (
    Batch,
    InputSpec,
    batch_of,
    by_input,
    check_dtype,
    check_finite,
    check_shape,
    have_batch_axis,
    only_input,
    stack,
)
from onnxq.samples.samples import Samples
from onnxq.samples.tensor_file import tensor_columns

TENSORS = ".safetensors"
AS_IMAGES = (
    " It has images: say how they become numbers, with --image-mean and --image-std (in Python "
    "onnxq.samples.Images)."
)


@dataclass(frozen=True, slots=True)
class _Item:
    """Contents of one file or item."""

    where: str
    arrays: Batch


def folder_files(folder: Path, where: str) -> list[Path]:
    """The .npz, .npy and .safetensors files of a folder, in the order of their names."""
    try:
        there = sorted(folder.iterdir())
    except OSError as error:
        raise CalibrationError(f"{where} cannot be read: {error.strerror}.") from error
    files = [path for path in there if path.suffix in (".npz", ".npy", TENSORS)]
    for path in files:
        if why := why_no_file(path):
            raise CalibrationError(f"{where}, '{path.name}': {why}. Replace it, or take it out.")
    if not files:
        images = "" if all(path.suffix.lower() not in SUFFIXES for path in there) else AS_IMAGES
        raise CalibrationError(
            f"{where}: no samples; wanted .npz, .npy or .safetensors files in the folder, one "
            f"sample or batch each.{images}"
        )
    return files


def batches_of_folder(
    files: Sequence[Path], samples: Samples, inputs: Sequence[InputSpec], where: str
) -> Iterator[Batch]:
    """Batches from files with one sample or one batch each, read as the samples say."""
    items = (_read(path, inputs, samples.ignore) for path in files)
    return _batches(items, inputs, samples.batch_size, where)


def batches_of_iterable(
    source: Iterable[object], samples: Samples, inputs: Sequence[InputSpec], where: str
) -> Iterator[Batch]:
    """Batches from dicts, tuples, arrays or tensors with one sample or one batch each."""
    items = (
        _convert(item, inputs, samples.ignore, f"{where} item {number}")
        for number, item in enumerate(source)
    )
    return _batches(items, inputs, samples.batch_size, where)


def _read(path: Path, inputs: Sequence[InputSpec], ignore: Collection[str]) -> _Item:
    where = f"samples '{path}'"
    if path.suffix == ".npy":
        return _Item(where, {only_input(inputs, where).name: whole(npy_column(path, where))})
    columns = tensor_columns(path, where) if path.suffix == TENSORS else npz_columns(path, where)
    kept = {n: c for n, c in columns.items() if n not in ignore}
    return _Item(where, {n: whole(c) for n, c in by_input(kept, inputs, where).items()})


def _convert(
    item: object, inputs: Sequence[InputSpec], ignore: Collection[str], where: str
) -> _Item:
    """The item's arrays by input name; nothing is checked yet but their number."""
    if isinstance(item, Mapping):
        arrays = {
            str(n): array_of(x, f"{where}, '{n}'") for n, x in item.items() if n not in ignore
        }
        return _Item(where, dict(by_input(arrays, inputs, where)))
    wanted = [spec.name for spec in inputs if not spec.optional]
    entries = list(item) if isinstance(item, tuple | list) else [item]
    if len(entries) not in (len(wanted), len(wanted) + 1):
        raise CalibrationError(
            f"{where}: {len(entries)} arrays; the model has {len(wanted)} inputs "
            f"({', '.join(wanted)}), and one more entry would be a label. Use a dict by input name."
        )
    return _Item(
        where, {n: array_of(x, f"{where}, '{n}'") for n, x in zip(wanted, entries, strict=False)}
    )


def _batches(
    items: Iterable[_Item], inputs: Sequence[InputSpec], batch_size: int | None, where: str
) -> Iterator[Batch]:
    """Stacks samples to batches, as long as their shapes are equal; batches run as they are."""
    size = batch_of(inputs, batch_size, where) if have_batch_axis(inputs) else 0
    static = any(spec.static_batch is not None for spec in inputs)
    pending: list[Batch] = []
    empty = True
    for item in items:
        empty = False
        if _is_batch(item, inputs):
            if pending:
                yield _stacked(pending, inputs, size, static, where)
                pending = []
            yield _checked_batch(item, inputs, batch_size)
            continue
        size = size or batch_of(inputs, batch_size, where)  # refuses samples
        sample = _checked_sample(item, inputs)
        if pending and not _stacks(sample, pending[0], inputs):
            yield _stacked(pending, inputs, size, static, where)
            pending = []
        pending.append(sample)
        if len(pending) == size:
            yield _stacked(pending, inputs, size, static, where)
            pending = []
    if pending:
        yield _stacked(pending, inputs, size, static, where)
    if empty:
        raise CalibrationError(f"{where}: no samples. Give at least one; 100 to 500 are usual.")


def _stacks(sample: Batch, other: Batch, inputs: Sequence[InputSpec]) -> bool:
    """Whether two samples fit into one batch: of equal shapes, and equal numbers of rank 0."""
    if {n: x.shape for n, x in sample.items()} != {n: x.shape for n, x in other.items()}:
        return False
    return all(np.array_equal(sample[n], other[n]) for n in _numbers(sample, inputs))


def _numbers(sample: Batch, inputs: Sequence[InputSpec]) -> list[str]:
    """Inputs of rank 0, which have no axis to stack along: one number for the batch."""
    return [spec.name for spec in inputs if spec.shape == () and spec.name in sample]


def _stacked(
    pending: Sequence[Batch], inputs: Sequence[InputSpec], size: int, static: bool, where: str
) -> Batch:
    """One batch of samples; the last one, or the last before another shape, may be smaller."""
    if static and len(pending) < size:
        raise CalibrationError(
            f"{where}: {len(pending)} samples are left over; the model has a static batch of "
            f"{size}. Give a multiple of {size} samples, or export the model with a dynamic batch."
        )
    same = {name: pending[0][name] for name in _numbers(pending[0], inputs)}
    return same | stack([{n: x for n, x in s.items() if n not in same} for s in pending])


def _is_batch(item: _Item, inputs: Sequence[InputSpec]) -> bool:
    """Whether the arrays have the inputs' ranks; False: all have one axis less."""
    less = {}
    for spec in inputs:
        if spec.name not in item.arrays:
            continue
        rank = item.arrays[spec.name].ndim
        if spec.shape is None or spec.shape == ():
            continue
        if rank not in (len(spec.shape), len(spec.shape) - 1):
            got = f"{item.arrays[spec.name].shape}"
            raise CalibrationError(
                f"{item.where}, array '{spec.name}' has shape {got}; the model wants {spec}, or "
                "one sample of it without the first axis."
            )
        less[spec.name] = rank < len(spec.shape)
    if len(set(less.values())) > 1:
        listed = ", ".join(f"'{n}' {'sample' if x else 'batch'}" for n, x in less.items())
        raise CalibrationError(
            f"{item.where}: some arrays are batches, others single samples ({listed}); wanted one "
            "kind. Add or remove the first axis."
        )
    return not any(less.values())


def _checked_batch(item: _Item, inputs: Sequence[InputSpec], batch_size: int | None) -> Batch:
    for spec in inputs:
        array = item.arrays.get(spec.name)
        if array is None:
            continue
        where = f"{item.where}, array '{spec.name}'"
        check_dtype(array.dtype, spec, where)
        check_shape(array.shape, spec, where, f"{array.shape}")
        if array.ndim and array.shape[0] == 0:
            raise CalibrationError(f"{where}: no samples (shape {array.shape}).")
        if batch_size is not None and spec.shape and array.shape[0] != batch_size:
            raise CalibrationError(
                f"{where} is a batch of {array.shape[0]}, which runs as it is; batch size "
                f"{batch_size} was asked for. Leave the batch size out."
            )
        check_finite(array, where, 0)
    return item.arrays


def _checked_sample(item: _Item, inputs: Sequence[InputSpec]) -> Batch:
    for spec in inputs:
        array = item.arrays.get(spec.name)
        if array is None:
            continue
        where = f"{item.where}, array '{spec.name}'"
        check_dtype(array.dtype, spec, where)
        if spec.shape == ():
            check_shape(array.shape, spec, where, f"{array.shape}")
        elif spec.shape:
            first = spec.static_batch or 1
            check_shape((first, *array.shape), spec, where, f"{array.shape} (one sample)")
        check_finite(array[None], where, 0)
    return item.arrays
