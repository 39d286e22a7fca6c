"""Arrays read a few rows at a time: from memory, from npy files, from members of an npz.

Files are not believed: a header may claim no more bytes than the file holds, a compressed member
may not unpack to much more than real samples do, and one reading takes at most READ_BYTES.
"""

import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from onnxq.core.arrays import Array
from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError, first_line

UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,  # zipfile: a version or compression that it does not know
    RuntimeError,  # zipfile: an encrypted member
    ValueError,
)
"""Errors that reading a damaged npz raises: one wrong byte can look like any feature of zip."""
HEADER_ERRORS = (
    *UNREADABLE,
    MemoryError,  # ast.literal_eval, of brackets within brackets
    SyntaxError,
    TypeError,
    tokenize.TokenError,
    LookupError,
)
"""Errors that NumPy raises for a header that is none."""
READ_BYTES = 1 << 30
"""Largest batch (or array that is read whole) that is taken from a file; larger ones are given as
arrays, whose memory the caller has already."""
BOMB_BYTES = 1 << 28
"""Compressed members that unpack to less are not looked at further."""
BOMB_RATIO = 200
"""Times that a member of BOMB_BYTES may grow when unpacked. Masks of zeros and ones shrink to a
twentieth, constant arrays to a thousandth."""
MAX_MEMBERS = 4096
"""Arrays in one npz; each is looked up in a directory of all."""


def why_unreadable(error: BaseException) -> str:
    """The first line of what NumPy or zipfile says.

    NumPy takes every file that it does not know for a pickle, and objects in an npz are one.
    """
    text = first_line(error)
    return "it is no npz of plain arrays" if "pickle" in text else text


RAGGED = "Pad samples of different lengths to one array, or give a list of dicts, one per sample."


class Reader(Protocol):
    """Gives the rows of an array in order."""

    def rows(self, count: int) -> Array:
        """The next `count` rows, shape (count, ...)."""

    def skip(self, count: int) -> None:
        """Leaves out the next `count` rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """An array that may be larger than memory.

    Attributes:
        where: what the array is, to begin a message with.
        source: the array itself, a .npy file, or an .npz file and the name of its member.
    """

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    source: Array | Path | tuple[Path, str]

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """A Reader that begins at the first row."""
        with ExitStack() as stack:
            if isinstance(self.source, np.ndarray):
                yield _Memory(self.source)
                return
            yield _reader(stack.enter_context(_opened(self.source)), self.where)


class _Memory:
    def __init__(self, array: Array) -> None:
        self._array = array
        self._next = 0

    def rows(self, count: int) -> Array:
        start, self._next = self._next, self._next + count
        return self._array[start : self._next]

    def skip(self, count: int) -> None:
        self._next += count


class _File:
    """Rows of a C-ordered npy stream, which need not be seekable: zip members are not, cheaply."""

    def __init__(
        self, file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str
    ) -> None:
        self._file = file
        self._row = shape[1:]
        self._dtype = dtype
        self._where = where

    def rows(self, count: int) -> Array:
        shape = (count, *self._row)
        size = math.prod(shape) * self._dtype.itemsize
        if size > READ_BYTES:
            raise CalibrationError(
                f"{self._where}: a batch of shape {shape} has {size >> 20} MiB; at most "
                f"{READ_BYTES >> 20} MiB are read at a time. Give smaller batches (batch size), or "
                "the arrays themselves, in Python."
            )
        try:
            array = np.empty(shape, self._dtype)
        except (ValueError, MemoryError) as error:  # no bytes, and a dimension beyond all bounds
            raise _broken(self._where, f"shape {shape} of {self._dtype}: {error}") from error
        view = memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b"")
        done = 0
        while done < len(view):
            data = _guarded(self._file, len(view) - done, self._where)
            view[done : done + len(data)] = data
            done += len(data)
        return array

    def skip(self, count: int) -> None:
        if count:  # members of compressed archives would be read through
            self._file.seek(count * math.prod(self._row) * self._dtype.itemsize, os.SEEK_CUR)


def _guarded(file: IO[bytes], size: int, where: str) -> bytes:
    """Between 1 and `size` bytes of the file."""
    try:
        data = file.read(min(size, 1 << 22))
    except UNREADABLE as error:
        raise _broken(where, str(error)) from error
    if not data:
        raise _broken(where, "it ends early")
    return data


def _broken(where: str, why: str) -> CalibrationError:
    return CalibrationError(
        f"{where} cannot be read: {why}. Write the file again, with numpy.savez."
    )


def _opened(source: Path | tuple[Path, str]) -> IO[bytes]:
    if isinstance(source, Path):
        return source.open("rb")
    path, member = source
    # the member keeps the archive's file open until it is closed itself
    with zipfile.ZipFile(path) as archive:
        return archive.open(member)


def is_bomb(*members: zipfile.ZipInfo) -> bool:
    """Whether the members together unpack to far more than arrays of real values do."""
    unpacked = sum(info.file_size for info in members)
    return unpacked > max(BOMB_BYTES, BOMB_RATIO * sum(info.compress_size for info in members))


def _held_bytes(file: IO[bytes], source: Path | tuple[Path, str], where: str) -> int:
    """Bytes that the source holds from here on, by the file system or the archive's directory."""
    if isinstance(source, Path):
        return source.stat().st_size - file.tell()
    with zipfile.ZipFile(source[0]) as archive:
        info = archive.getinfo(source[1])
    if is_bomb(info):
        raise CalibrationError(
            f"{where}: {info.compress_size} bytes in the file unpack to {info.file_size}, which no "
            "samples do but constant ones. Write the file with numpy.savez, uncompressed, if they "
            "are meant."
        )
    return info.file_size - file.tell()


def _header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    except HEADER_ERRORS as error:
        raise _broken(where, f"it is no npy data ({why_unreadable(error)})") from error
    if dtype.hasobject or dtype.names or dtype.subdtype or dtype.itemsize == 0:
        raise CalibrationError(
            f"{where} holds Python objects or records ({dtype}); wanted a plain array of numbers. "
            "Samples of different shapes go into a folder, one file each."
        )
    if any(not isinstance(size, int) or size < 0 for size in shape):
        raise _broken(where, f"its header claims the shape {shape}")
    return shape, fortran, dtype


def _reader(file: IO[bytes], where: str) -> Reader:
    shape, fortran, dtype = _header(file, where)
    reader = _File(file, shape if not fortran else (1, *shape[::-1]), dtype, where)
    if not fortran:
        return reader
    return _Memory(reader.rows(1)[0].T)  # columns come first in the file: it must be read whole


def _column(where: str, source: Path | tuple[Path, str]) -> Column:
    try:
        with _opened(source) as file:
            shape, _, dtype = _header(file, where)
            held = _held_bytes(file, source, where)
    except UNREADABLE as error:
        raise _broken(where, why_unreadable(error)) from error
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > held:
        raise _broken(
            where, f"it ends early: shape {shape} of {dtype} has {claimed} bytes, the file {held}"
        )
    return Column(where, shape, dtype, source)


def npy_column(path: Path, where: str) -> Column:
    """The array of a .npy file; only its header is read."""
    _check_regular(path, where)
    return _column(where, path)


def npz_columns(path: Path, where: str) -> dict[str, Column]:
    """The arrays of an .npz file, by name; only their headers are read."""
    _check_regular(path, where)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except UNREADABLE as error:
        raise CalibrationError(
            f"{where} is not an npz file ({error}). Write it with numpy.savez(path, name=array)."
        ) from error
    if len(members) > MAX_MEMBERS:
        raise CalibrationError(
            f"{where} holds {len(members)} arrays; wanted one per input. Stack the samples of an "
            "input to one array, or write a folder of files."
        )
    named = ((member.removesuffix(".npy"), member) for member in members)
    return {name: _column(f"{where}, array '{name}'", (path, member)) for name, member in named}


def _check_regular(path: Path, where: str) -> None:
    if why := why_no_file(path):
        raise CalibrationError(f"{where} cannot be read: {why}. Give .npz or .npy files.")


def array_of(value: object, where: str) -> Array:
    """A NumPy array of an array or tensor, without importing the tensor's library."""
    if isinstance(value, np.ndarray):
        return value
    try:
        for step in ("detach", "cpu", "numpy"):  # a torch tensor needs all three
            if hasattr(value, step):
                value = getattr(value, step)()
        # a number of Python has no type of its own; models take float32
        array = np.asarray(value, np.float32 if isinstance(value, float) else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CalibrationError(
            f"{where}: {type(value).__name__} is not an array ({error}); wanted NumPy arrays or "
            f"tensors. {RAGGED}"
        ) from error
    if array.dtype.hasobject or array.dtype.kind in "USV":
        raise CalibrationError(
            f"{where}: {type(value).__name__} is not an array of numbers; wanted NumPy arrays or "
            "tensors. Leave out what is no input: onnxq.Samples(source, ignore=[NAME]), --ignore."
        )
    return array


def memory_column(array: Array, where: str) -> Column:
    """An array that is in memory (or mapped) already."""
    return Column(where, array.shape, array.dtype, array)


def whole(column: Column) -> Array:
    """The whole array, in memory."""
    if isinstance(column.source, np.ndarray):
        return column.source
    with _opened(column.source) as file:
        shape, fortran, dtype = _header(file, column.where)
        reader = _File(file, (1, *(shape[::-1] if fortran else shape)), dtype, column.where)
        array: Array = reader.rows(1)[0, ...]  # an array of rank 0 too, and no NumPy scalar
        return array.T if fortran else array
