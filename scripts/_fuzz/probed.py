"""Folders of a case, and whatever a call does to files that it has no business with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scripts._fuzz.case import SECRET_BYTES, Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod"}
_FOLDER_AT = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}
"""Event -> which of its arguments is the descriptor of the folder that a path is relative to."""
_HARMLESS = ("/dev/null", "/proc/", "/sys/", "/dev/shm/")


class Watch:
    """Hears every file that Python opens or changes in this process; one for its whole life.

    What C++ opens is not heard, but found by `changed`, if it writes into the case's folder.
    """

    def __init__(self) -> None:
        self._scratch: Scratch | None = None
        self._heard: list[str] = []
        sys.dont_write_bytecode = True  # which a call's first imports would write, somewhere
        sys.addaudithook(self._hear)

    def begin(self, scratch: Scratch) -> None:
        """From now on only that folder's `out` and `tmp` may change, and `outside` not be read."""
        self._heard.clear()
        self._scratch = scratch

    def end(self) -> list[str]:
        """Sentences about what was opened or changed since `begin` and may not be."""
        self._scratch = None
        return list(dict.fromkeys(self._heard))

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        scratch = self._scratch
        if scratch is None or not (event == "open" or event in _CHANGING):
            return
        if not isinstance(args[0], str | bytes | os.PathLike):
            return  # a file descriptor
        # as the system takes it: links are not followed
        path = os.path.normpath(_folder(event, args) / os.fsdecode(args[0]))
        flags = args[2] if event == "open" and len(args) > 2 else _WRITING
        writes = isinstance(flags, int) and bool(flags & _WRITING)
        if path.startswith(str(scratch.outside)):
            self._heard.append(f"{event} {'for writing ' if writes else ''}of outside/")
        elif writes and not self._may_change(Path(path), scratch):
            self._heard.append(f"{event} for writing of {path}")

    @staticmethod
    def _may_change(path: Path, scratch: Scratch) -> bool:
        if str(path).startswith(_HARMLESS):
            return True
        return any(path.is_relative_to(f) for f in (scratch.outputs, scratch.root / "tmp"))


def _folder(event: str, args: tuple[object, ...]) -> Path:
    """The folder that a path is relative to: a file descriptor's, else the current one."""
    at = _FOLDER_AT.get(event)
    descriptor = args[at] if at is not None and len(args) > at else -1
    if isinstance(descriptor, int) and descriptor >= 0:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    return Path.cwd()


def make(root: Path) -> Scratch:
    """The folders of a case, empty but for the secret."""
    scratch = Scratch(root)
    for folder in scratch.folders:
        folder.mkdir(parents=True)
    secret = np.random.default_rng(0).standard_normal(SECRET_BYTES // 4).astype(np.float32)
    scratch.secret.write_bytes(secret.tobytes())
    return scratch


def listing(scratch: Scratch) -> dict[str, tuple[int, int, int]]:
    """Path -> (kind, size, time of change) of all that may not change."""
    found = {}
    for path in _below(scratch.root):
        if path.is_relative_to(scratch.outputs):
            continue
        state = path.lstat()
        found[str(path.relative_to(scratch.root))] = (
            state.st_mode,
            state.st_size if path.is_file() else 0,
            state.st_mtime_ns if not path.is_dir() else 0,
        )
    return found


def changed(
    before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]
) -> list[str]:
    """Sentences about files that appeared, went or are others; of a temporary folder too."""
    names = sorted(before.keys() | after.keys())
    return [f"{name} changed" for name in names if before.get(name) != after.get(name)]


def _below(folder: Path) -> Iterator[Path]:
    for inner, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(inner, name)
