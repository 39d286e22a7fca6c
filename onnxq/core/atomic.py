"""Files that are there whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnxq.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_NAME_START_BYTES = 200
"""Bytes of the target's name in that of the temporary file: names end at 255 bytes."""


def write_atomically(path: str | Path, write: Callable[[BinaryIO], object]) -> None:
    """Lets `write` fill a new file and puts it at path; on any error the old file, if any, stays.

    Raises:
        OutputError: the file cannot be written; nothing is left behind.
    """
    target = check_writable(path)
    with temporary(target) as part, as_output_error(target):
        with part.open("xb") as file:
            write(file)
        part.replace(target)


@contextlib.contextmanager
def as_output_error(target: Path) -> Iterator[None]:
    """Turns an OSError (disk full, no permission) into an OutputError that names the target."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"'{target}' cannot be written: {error.strerror or error}. Choose another place."
        ) from error


def check_writable(path: str | Path) -> Path:
    """The path of the file that `save` would write (links followed); leaves nothing behind.

    Raises:
        OutputError: the folder is missing, or path is a folder, a device, a pipe or a socket, or
            the folder takes no new file, or no file may have that name.
    """
    target = Path(path).absolute()
    _refuse_bad_names(target)
    if target.is_symlink():
        target = target.resolve()
    if target.is_dir():
        raise OutputError(
            f"'{target}' is a folder; give a file name, like '{target / 'model.onnx'}'."
        )
    if target.exists() and not target.is_file():
        raise OutputError(
            f"'{target}' cannot be written: it is a device, pipe or socket, which a file would "
            "replace. Give the name of a file."
        )
    if not target.parent.is_dir():
        raise OutputError(f"'{target}' cannot be written: folder '{target.parent}' does not exist.")
    with temporary(target) as part, as_output_error(target), part.open("xb"):
        pass
    return target


def _refuse_bad_names(target: Path) -> None:
    """Raises OutputError for a name that is too long and for a link that leads to itself."""
    with as_output_error(target), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        target.stat()


@contextlib.contextmanager
def temporary(target: Path) -> Iterator[Path]:
    """A free name beside the target (renames within a folder are atomic), removed at the end."""
    start = os.fsencode(target.name)[:MAX_NAME_START_BYTES].decode(errors="ignore")
    part = target.with_name(f".{start}.{secrets.token_hex(8)}.tmp")
    try:
        yield part
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            part.unlink()
