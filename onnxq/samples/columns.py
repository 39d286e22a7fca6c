"""Arrays read a few rows at a time: from memory, from npy files, from members of an npz."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import numpy as np

from onnxq.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Array

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


def why_unreadable(error: BaseException) -> str:
    """The first line of what NumPy or zipfile says.

    NumPy takes every file that it does not know for a pickle, and objects in an npz are one.
    """
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return "it is no npz of plain arrays" if "pickle" in text else text


class Reader(Protocol):
    """Gives the rows of an array in order."""

    def rows(self, count: int) -> Array:
        """The next `count` rows, shape (count, ...)."""


@dataclass(frozen=True, slots=True)
class Column:
    """An array that may be larger than memory.

    Attributes:
        where: what the array is, to begin a message with.
        shape: of the whole.
        dtype: of its elements.
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
            file = stack.enter_context(_opened(self.source))
            yield _reader(file, self.where)


class _Memory:
    def __init__(self, array: Array) -> None:
        self._array = array
        self._next = 0

    def rows(self, count: int) -> Array:
        start, self._next = self._next, self._next + count
        return self._array[start : self._next]


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
        array = np.empty(shape, self._dtype)
        view = memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b"")
        done = 0
        while done < len(view):
            data = _guarded(self._file, len(view) - done, self._where)
            view[done : done + len(data)] = data
            done += len(data)
        return array


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


def _header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    except UNREADABLE as error:
        raise _broken(where, f"it is no npy data ({str(error).splitlines()[0]})") from error
    if dtype.hasobject or dtype.names:
        raise CalibrationError(
            f"{where} holds Python objects or records ({dtype}); wanted a plain array of numbers. "
            "Samples of different shapes go into a folder, one file each."
        )
    return shape, fortran, dtype


def _reader(file: IO[bytes], where: str) -> Reader:
    shape, fortran, dtype = _header(file, where)
    reader = _File(file, shape if not fortran else (1, *shape[::-1]), dtype, where)
    if not fortran:
        return reader
    return _Memory(reader.rows(1)[0].T)  # columns come first in the file: it must be read whole


def _column(where: str, source: Path | tuple[Path, str]) -> Column:
    with _opened(source) as file:
        shape, _, dtype = _header(file, where)
    return Column(where, shape, dtype, source)


def npy_column(path: Path, where: str) -> Column:
    """The array of a .npy file; only its header is read.

    Raises:
        CalibrationError: the file is no npy file, or holds objects.
    """
    return _column(where, path)


def npz_columns(path: Path, where: str) -> dict[str, Column]:
    """The arrays of an .npz file, by name; only their headers are read.

    Raises:
        CalibrationError: the file is no npz file, or holds objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except UNREADABLE as error:
        raise CalibrationError(
            f"{where} is not an npz file ({error}). Write it with numpy.savez(path, name=array)."
        ) from error
    columns = {}
    for member in members:
        name = member.removesuffix(".npy")
        try:
            columns[name] = _column(f"{where}, array '{name}'", (path, member))
        except UNREADABLE as error:
            raise _broken(f"{where}, array '{name}'", str(error)) from error
    return columns


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
        array: Array = reader.rows(1)[0]
        return array.T if fortran else array
