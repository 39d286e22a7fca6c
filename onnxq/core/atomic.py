"""Files that are there whole or not at all: written beside their place, then renamed.

A temporary file names the process that writes it (see `owner`). Whatever ends that process by an
exception or a signal that Python hears, the file is removed; one that a kill or a power failure
left is removed by the next writing to the same place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from onnxq.core.brief import size_text
from onnxq.errors import OutputError, kind_of

MAX_NAME_START_BYTES = 120
"""Bytes of the target's name in that of the temporary file: names end at 255 bytes."""
ENDING = ".tmp"
FOLDER = "onnxq-"
"""How names of temporary folders begin."""
_STREAMS = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")

FULL = frozenset(
    getattr(errno, name, None)  # not every system has each
    for name in ("ENOSPC", "EDQUOT")
)
"""Errors of a disk that is full, or a user's part of it."""

_in_use: dict[Path, Path | None] = {}
"""Temporary file or folder -> the file that it is for; None: for none."""


def write_atomically(
    path: str | Path, write: Callable[[BinaryIO], object], needed: Callable[[], int] | None = None
) -> None:
    """Lets `write` fill a new file and puts it at path; on any error the old file, if any, stays.

    Args:
        path: of the file.
        write: writes all of it.
        needed: gives its bytes, for the message on a full disk; None: not known.
    Raises:
        OutputError: the file cannot be written; nothing is left behind.
    """
    target = check_writable(path)
    with temporary(target) as part, as_output_error(target, needed):
        with part.open("xb") as file:
            write(file)
        put(part, target)


def put(part: Path, target: Path) -> None:
    """Gives a complete temporary file its name, with the permissions of the file that was there.

    Its bytes are on the disk before its name is: after a power failure, the old file or the new one
    is there, and not an empty one.
    """
    with contextlib.suppress(FileNotFoundError):
        part.chmod(stat.S_IMODE(target.stat().st_mode))
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(target)
    with contextlib.suppress(OSError):  # folders cannot be opened, or not synced, everywhere
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def as_output_error(
    target: Path, needed: Callable[[], int] | None = None, then: str = ""
) -> Iterator[None]:
    """Turns an OSError (disk full, no permission) into an OutputError that names the target.

    Args:
        target: the file; of a temporary one, that which it is for is named.
        needed: gives the bytes of the whole file; asked on a full disk. None: not known.
        then: sentence on what to do when there is room.
    """
    room = _room(target.parent)
    try:
        yield
    except OSError as error:
        shown = _in_use.get(target.absolute()) or target
        why, remedy = error.strerror or str(error), "Choose another place."
        if error.errno in FULL:
            why += f": {room}{_wanted(needed)}"
            remedy = f"Free some space, or choose another place.{then and f' {then}'}"
        if error.errno == errno.EFBIG:
            why += f": a limit on the size of files (ulimit -f){_wanted(needed)}"
            remedy = f"Raise it, or choose another place.{then and f' {then}'}"
        raise OutputError(f"'{shown}' cannot be written: {why}. {remedy}") from error


def _room(folder: Path) -> str:
    """Bytes that are free in a folder, in words."""
    try:
        return f"{size_text(shutil.disk_usage(folder).free)} were free"
    except OSError:  # the folder is not there, which the write will say
        return "no room is known of"


def _wanted(needed: Callable[[], int] | None) -> str:
    """Bytes of the whole file, in words; empty where they are not known."""
    return "" if needed is None else f", {size_text(needed())} are needed"


def check_writable(path: str | Path) -> Path:
    """The path of the file that `save` would write (links followed); leaves nothing behind.

    Raises:
        OutputError: the folder is missing, or path is a folder, a device, a pipe or a socket, or
            the folder takes no new file, or no file may have that name; or it is no path.
    """
    if not isinstance(path, str | os.PathLike):
        raise OutputError(
            f"the path of the file to write is {kind_of(path)}; wanted a text or a Path."
        )
    target = Path(path).absolute()
    _refuse_bad_names(target)
    if str(target).startswith(_STREAMS):
        raise OutputError(
            f"'{target}' cannot be written: files are written whole, and renamed to their place. "
            "Give the name of a file."
        )
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
        raise OutputError(
            f"'{target}' cannot be written: folder '{target.parent}' does not exist. Make it, or "
            "give another."
        )
    with temporary(target) as part, as_output_error(target), part.open("xb"):
        pass
    return target


def _refuse_bad_names(target: Path) -> None:
    """Raises OutputError for a name that is too long and for a link that leads to itself."""
    with as_output_error(target), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            target.stat()
        except ValueError as error:  # a zero byte
            raise OutputError(f"{str(target)!r} cannot be written: {error}.") from error


@contextlib.contextmanager
def temporary(target: Path) -> Iterator[Path]:
    """A free name beside the target (renames within a folder are atomic), removed at the end.

    What dead processes left there for the same target is removed too.
    """
    start = f".{os.fsencode(target.name)[:MAX_NAME_START_BYTES].decode(errors='ignore')}."
    _remove_left(target.parent, start, ENDING)
    with _used(target.with_name(_named(start) + ENDING), target) as part:
        yield part


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder for intermediate files, removed at the end with what dead processes left."""
    place = Path(tempfile.gettempdir())
    _remove_left(place, FOLDER, "")
    with _used(place / _named(FOLDER), None) as folder:
        folder.mkdir(mode=0o700)
        yield folder


def is_temporary(path: Path) -> bool:
    """Whether this process removes the file at the end."""
    return path.absolute() in _in_use


def remove_temporary() -> None:
    """Removes what this process has not removed yet.

    For its end: an exception out of a signal handler can come between any two instructions, those
    of `temporary` included.
    """
    ours = str(this_process())
    for path in list(_in_use):
        if ours in path.name:  # after a fork, the other ones are the parent's
            _remove(path)


def _named(start: str) -> str:
    return f"{start}{this_process()}.{secrets.token_hex(8)}"


@contextlib.contextmanager
def _used(path: Path, target: Path | None) -> Iterator[Path]:
    _in_use[path.absolute()] = target
    try:
        yield path
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()
    _in_use.pop(path.absolute(), None)


def _remove_left(place: Path, start: str, ending: str) -> None:
    """Removes temporary files and folders of that form whose owners are dead."""
    with contextlib.suppress(OSError):  # a folder that cannot be listed; a file of another user
        for name in os.listdir(place):  # noqa: PTH208  # names, of folders with many files
            if not (name.startswith(start) and name.endswith(ending)):
                continue
            text, _, token = name[len(start) : len(name) - len(ending)].rpartition(".")
            owner = Owner.parse(text)
            if token and owner is not None and owner.is_dead():
                _remove(place / name)


# --- The process that writes a temporary file, as part of the file's name
#
#     .model.onnx.myhost_4026531836-4711-88231.5b1f0c9d2e7a4c60.tmp
#                 host and pid namespace, pid, when the process began (clock ticks since boot)
#
# A file whose owner is dead is left over, and may be removed. Of an owner on another host or in
# another container nothing can be said: its files stay.


MAX_HOST = 32  # characters of the host's name
_PATTERN = re.compile(r"(?P<host>\w+)-(?P<pid>\d+)-(?P<began>\d+)")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that writes files.

    Attributes:
        host: where it runs; on Linux with the number of its pid namespace.
        began: when, so that a later process of that number is told from it; 0 where that is not
            known.
    """

    host: str
    pid: int
    began: int

    @staticmethod
    def parse(text: str) -> Owner | None:
        """Owner whose `str` that is; None: it is no owner's."""
        match = _PATTERN.fullmatch(text)
        return match and Owner(match["host"], int(match["pid"]), int(match["began"]))

    def is_dead(self) -> bool:
        """Whether the process is known to have ended."""
        if self.host != _host() or sys.platform == "win32":  # os.kill would end it there
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:  # another user's
            pass
        return bool(self.began) and _began(self.pid) != self.began

    def __str__(self) -> str:
        return f"{self.host}-{self.pid}-{self.began}"


def this_process() -> Owner:
    """Owner that is this process."""
    pid = os.getpid()  # asked each time: a fork has another one
    return Owner(_host(), pid, _began(pid))


@cache
def _host() -> str:
    name = re.sub(r"\W", "_", platform.node() or "host", flags=re.ASCII)[:MAX_HOST]
    try:
        namespace = Path("/proc/self/ns/pid").readlink().name  # pid:[4026531836]
    except OSError:
        return name
    return f"{name}_{re.sub(r'[^0-9]', '', namespace)}"


def _began(pid: int) -> int:
    """Clock ticks from boot to the start of a running process; 0: unknown, ended or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    state, *fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold anything
    return 0 if state in "ZX" else int(fields[18])
