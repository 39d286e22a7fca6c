"""Append-only journals: a head line, then records, each on the disk before the next one begins.

    {"format": ..., ...}        the head: what the records are of
    <record> <record> ...       whole ones; perhaps a part of one, which the next `begin` cuts off

A process that is killed leaves whole records; the next one of the same head goes on behind them.
"""

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Mapping
from io import BufferedRandom
from pathlib import Path
from typing import IO, ClassVar, Self

from onnxq.core.atomic import as_output_error, check_writable, is_temporary
from onnxq.core.regular import why_no_file
from onnxq.core.saved import UNREADABLE, Saved
from onnxq.errors import CalibrationError, OutputError

# --- Journals that one process at a time may write, and their locks, which end with the process


def open_journal(path: Path, command: str) -> BufferedRandom:
    """A journal, which this process alone may write to until it is closed."""
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
    """Locks a file for as long as it is open, where the system knows locks."""
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


# --- Append-only journals: a head line, then records, each on the disk before the next one
#     begins


LONGEST_HEAD = 1 << 24
"""Bytes of a first line, at most; a file of something else may have one without an end."""
KEPT = "Its records are kept, and the next run goes on from them."


class RecordsHead(Saved):
    """Base of first lines, which say what a journal's records are of; frozen dataclasses.

    Attributes:
        WORDS: field -> words on its difference, where its values would say nothing.
    """

    WORDS: ClassVar[Mapping[str, str]] = {}
    ANEW: ClassVar[str] = "Give another file, or remove this one to begin anew."

    def differences(self, other: Self) -> list[str]:
        """Words on each field that keeps `other` from going on with this journal."""
        mine, theirs = self.to_dict(), other.to_dict()
        return [
            f"{k}: {self.WORDS.get(k, f'{mine[k]}, and now {theirs[k]}')}"
            for k in mine
            if mine[k] != theirs[k]
        ]


class AppendOnlyFile:
    """Base of journals: an open file behind its last whole record, or records in memory alone.

    It is a context manager that closes the file, which other processes may write to from then on.
    """

    def __init__(self, path: Path | None = None, file: BufferedRandom | None = None) -> None:
        self._path, self._file = path, file

    def close(self) -> None:
        """Closes the file; once is enough."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a record that did not fit, which `write` said
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, *pieces: bytes | memoryview) -> None:
        """Appends one record, whose bytes are on the disk then; nothing in memory."""
        if self._file is None or self._path is None:
            return
        needed = sum(memoryview(piece).nbytes for piece in pieces)
        then = "" if is_temporary(self._path) else KEPT
        with as_output_error(self._path, lambda: needed, then):
            for piece in pieces:
                self._file.write(piece)
            self._file.flush()
            os.fsync(self._file.fileno())


def begin(
    path: str | Path, head: RecordsHead, command: str, whole: Callable[[BufferedRandom], int]
) -> tuple[Path, BufferedRandom]:
    """(the path, its file): locked, and open behind the last whole record; empty where it is new.

    Args:
        path: of the journal; made where it is not there.
        head: of the job at hand.
        command: that keeps such journals, for messages.
        whole: reads the file from its beginning; gives the bytes up to the end of the last whole
            record, 0 where not even the head is whole. What is behind them is cut off.
    """
    target = check_writable(path)
    check_head(target, head)
    with contextlib.ExitStack() as failing:
        file = failing.enter_context(open_journal(target, command))
        check_head(target, head)  # what was written until it was ours
        length = whole(file)
        with as_output_error(target):
            file.truncate(length)
            file.seek(length)
        failing.pop_all()
    return target, file


def check_head(path: Path, head: RecordsHead) -> None:
    """Passes a file that is not there, is empty, or begins with this head or a part of it."""
    if not path.exists():
        return
    if why := why_no_file(path):
        raise CalibrationError(f"journal '{path}': {why}. {head.ANEW}")
    with path.open("rb") as file:
        line = file.readline(LONGEST_HEAD)
    beginning = json.dumps({"format": head.FORMAT}).encode().removesuffix(b"}")
    if line[: len(beginning)] != beginning[: len(line)]:
        raise CalibrationError(f"journal '{path}': it does not begin like a journal. {head.ANEW}")
    if not line.endswith(b"\n"):
        return  # torn: nothing stands behind it
    try:
        apart = type(head).from_dict(json.loads(line)).differences(head)
    except UNREADABLE as error:
        raise CalibrationError(
            f"journal '{path}', first line: {error!r:.200}. {head.ANEW}"
        ) from error
    if apart:
        raise CalibrationError(
            f"journal '{path}' is of something else ({'; '.join(apart)}). {head.ANEW}"
        )
