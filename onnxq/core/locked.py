"""Journals that one process at a time may write, and their locks, which end with the process."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Self

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


class OpenJournal:
    """A journal that is written to, or one in memory; also a context manager that closes it."""

    _file: BufferedRandom | None = None

    def close(self) -> None:
        """Closes the file, which other processes may write to from then on; once is enough."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a record that did not fit, which `append` said
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
