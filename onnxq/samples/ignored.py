"""Names to ignore, held against the arrays that there are: a misspelt one would be silent."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from onnxq.errors import CalibrationError, nearest
from onnxq.samples.columns import npz_columns
from onnxq.samples.items import TENSORS, folder_files
from onnxq.samples.samples import Samples
from onnxq.samples.tensor_file import tensor_columns


def check_ignored(*samples: Samples | None) -> None:
    """Refuses a name to ignore that no array has, in any of the sources.

    Sources whose names show only as they are read (generators, lists of batches, opened Batches)
    are taken to have them all. Of a folder, files are looked at until all names were found.
    """
    given = [each.source for each in samples if each is not None and each.source is not None]
    ignore = dict.fromkeys(name for each in samples if each for name in each.ignore)
    if not ignore or not given or not all(_is_known(source) for source in given):
        return
    seen: dict[str, None] = {}
    for name in (name for source in given for name in _names(source)):
        seen[name] = None
        if seen.keys() >= ignore.keys():
            return
    lacking = next(name for name in ignore if name not in seen)
    raise CalibrationError(
        f"samples: no array '{lacking}' is there to ignore; there are {', '.join(seen) or 'none'}."
        f"{nearest(lacking, seen)} Correct the name, or leave it out of ignore (--ignore)."
    )


def _is_known(source: object) -> bool:
    """Whether names of arrays can be told without a pass over the samples."""
    if isinstance(source, str | Path):
        return Path(source).exists()
    return isinstance(source, Mapping | np.ndarray)


def _names(source: object) -> Iterator[str]:
    if isinstance(source, Mapping):
        yield from map(str, source)
    if not isinstance(source, str | Path):
        return
    path = Path(source)
    for file in folder_files(path, f"samples '{path}'") if path.is_dir() else [path]:
        if file.suffix != ".npy":  # one array, without a name
            read = tensor_columns if file.suffix == TENSORS else npz_columns
            yield from read(file, f"samples '{file}'")
