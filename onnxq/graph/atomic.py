"""Files that are there whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnxq.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
        OutputError: the folder is missing, or path is a folder, or the folder takes no new file.
    """
    target = Path(path).absolute()
    if target.is_symlink():
        target = target.resolve()
    if target.is_dir():
        raise OutputError(
            f"'{target}' is a folder; give a file name, like '{target / 'model.onnx'}'."
        )
    if not target.parent.is_dir():
        raise OutputError(f"'{target}' cannot be written: folder '{target.parent}' does not exist.")
    with temporary(target) as part, as_output_error(target), part.open("xb"):
        pass
    return target


@contextlib.contextmanager
def temporary(target: Path) -> Iterator[Path]:
    """A free name beside the target (renames within a folder are atomic), removed at the end."""
    suffix = f".{secrets.token_hex(8)}.tmp"
    part = target.with_name(f".{target.name[:200]}{suffix}")  # names end at 255 bytes
    try:
        yield part
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            part.unlink()
