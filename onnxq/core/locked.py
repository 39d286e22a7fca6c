"""Locks on open files, which one process at a time may write; they end with the process."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from onnxq.core.atomic import as_output_error
from onnxq.errors import OutputError

if TYPE_CHECKING:
    from io import BufferedRandom
    from pathlib import Path
    from typing import IO


def open_journal(path: Path, command: str) -> BufferedRandom:
    """A journal, which this process alone may write to until it is closed.

    Args:
        path: of the journal; made where it is not there. It is opened for reading and writing.
        command: that keeps such journals, for the message.

    Raises:
        OutputError: it cannot be opened, or another process writes to it.
    """
    with as_output_error(path):
        file = path.open("r+b") if path.exists() else path.open("x+b")
    try:
        lock(file)
    except BlockingIOError as error:
        file.close()
        raise OutputError(
            f"journal '{path}' is in use: another {command} writes to it. Wait for its end, or "
            "give another file."
        ) from error
    return file


def lock(file: IO[bytes]) -> None:
    """Locks a file for as long as it is open.

    Where the system or the file system knows no locks, nothing is locked.

    Args:
        file: open for writing.

    Raises:
        BlockingIOError: another open file holds its lock.
    """
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a network's file system without locks
        return
