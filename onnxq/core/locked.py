"""Locks on open files, which one process at a time may write; they end with the process."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO


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
