"""Arrays of a .safetensors file, mapped into memory: no package is needed to read it.

8 bytes     length of the header, little endian
header      JSON: name -> dtype, shape, data_offsets [first, last)
data        rows of each tensor, C order
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError
from onnxq.samples.columns import Column, memory_column

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
"""Name of a type in the file -> NumPy's."""
LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100 << 20  # as the format's own reader allows


def tensor_columns(path: Path, where: str) -> dict[str, Column]:
    """The arrays of the file, by name; only its header is read."""
    if why := why_no_file(path):
        raise CalibrationError(f"{where} cannot be read: {why}. Give a .safetensors file.")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if not 0 < length <= min(size - LENGTH_BYTES, MOST_HEADER_BYTES):
            raise _broken(where, f"its header claims {length} bytes, the file has {size}")
        text = file.read(length)
    try:
        entries = {n: e for n, e in json.loads(text).items() if n != "__metadata__"}
        named = {name: _entry(each) for name, each in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _broken(where, f"its header is none ({type(error).__name__})") from error
    start = LENGTH_BYTES + length
    return {
        name: _column(path, f"{where}, array '{name}'", size - start, start, entry)
        for name, entry in named.items()
    }


def _entry(said: Mapping[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    """Type, shape, and first and last byte of a tensor."""
    first, last = map(int, said["data_offsets"])
    return str(said["dtype"]), tuple(map(int, said["shape"])), first, last


def _column(
    path: Path, where: str, held: int, start: int, entry: tuple[str, tuple[int, ...], int, int]
) -> Column:
    kind, shape, first, last = entry
    if kind not in TYPES:
        raise CalibrationError(f"{where} is {kind}; wanted one of {', '.join(TYPES)}.")
    dtype = np.dtype(TYPES[kind])
    wanted = math.prod(shape) * dtype.itemsize
    if min((first, *shape), default=0) < 0 or last - first != wanted or last > held:
        raise _broken(where, f"shape {shape} of {kind} does not lie at bytes {first} to {last}")
    if not wanted:
        return memory_column(np.empty(shape, dtype), where)
    mapped = np.memmap(path, dtype, "r", start + first, shape or (1,))
    return memory_column(np.asarray(mapped).reshape(shape), where)


def _broken(where: str, why: str) -> CalibrationError:
    return CalibrationError(
        f"{where} cannot be read: {why}. Write the file again, with safetensors.numpy.save_file."
    )
