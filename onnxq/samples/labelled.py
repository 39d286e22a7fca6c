"""Samples with labels: arrays that are no inputs of the model stay beside those that are.

In an .npz, among arrays by name and in dicts, every further array is one. In a tuple with an entry
more than the model has inputs, that entry is the array "labels".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from onnxq.core.memory import bytes_to_keep
from onnxq.errors import CalibrationError
from onnxq.samples.batches import Batches
from onnxq.samples.columns import npz_columns
from onnxq.samples.images import Images
from onnxq.samples.inputs import Batch, InputSpec
from onnxq.samples.items import TENSORS, folder_files
from onnxq.samples.samples import Samples
from onnxq.samples.sources import open_samples
from onnxq.samples.tensor_file import tensor_columns

LABELS = "labels"
"""Name of the entry of a tuple that is no input."""


def open_labelled(samples: object, inputs: Sequence[InputSpec]) -> Batches:
    """Samples of which each batch holds the inputs and every other array; they are in memory."""
    given = Samples.of(samples)
    source = given.source
    if isinstance(source, Batches | Images):
        return _in_memory(open_samples(given, inputs))
    if not isinstance(source, str | Path | Mapping | np.ndarray):
        source = list(_items(source))
    labels = _labels(source, {spec.name for spec in inputs}, sum(not s.optional for s in inputs))
    specs = [InputSpec(n, kind, None) for n, kind in labels.items() if n not in given.ignore]
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


def _labels(source: object, known: Collection[str], inputs: int) -> dict[str, np.dtype[np.generic]]:
    """Name -> type of the arrays that are no inputs."""
    if isinstance(source, list):
        return _labels_of_item(source[0], known, inputs) if source else {}
    if isinstance(source, Mapping):
        return {str(n): np.asarray(x).dtype for n, x in source.items() if n not in known}
    if not isinstance(source, str | Path):
        return {}
    path = Path(source)
    where = f"samples '{path}'"
    if path.is_dir():
        path = folder_files(path, where)[0]
    if path.suffix == ".npy" or not path.is_file():
        return {}  # which `open_samples` refuses in its own words
    read = tensor_columns if path.suffix == TENSORS else npz_columns
    return {n: c.dtype for n, c in read(path, where).items() if n not in known}


def _labels_of_item(
    item: object, known: Collection[str], inputs: int
) -> dict[str, np.dtype[np.generic]]:
    if isinstance(item, Mapping):
        return {str(n): _type_of(x) for n, x in item.items() if n not in known}
    if isinstance(item, tuple | list) and len(item) == inputs + 1:
        return {LABELS: _type_of(item[-1])}
    return {}


def _type_of(value: object) -> np.dtype[np.generic]:
    """Type that the value has as an array; a number of Python is float32, as of an input."""
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
