"""The process that writes a temporary file, as part of the file's name.

    .model.onnx.myhost_4026531836-4711-88231.5b1f0c9d2e7a4c60.tmp
                host and pid namespace, pid, when the process began (clock ticks since boot)

A file whose owner is dead is left over, and may be removed. Of an owner on another host or in
another container nothing can be said: its files stay.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAX_HOST = 32  # characters of the host's name
_PATTERN = re.compile(r"(?P<host>\w+)-(?P<pid>\d+)-(?P<began>\d+)")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that writes files.

    Attributes:
        host: where it runs; on Linux with the number of its pid namespace.
        pid: its number there.
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
