"""Processes that run cases: forked from one that has imported everything, ended when stuck."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scripts import _pool
from scripts._fuzz import inside
from scripts._fuzz.inside import ALONE, Ended, Job, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection

CPU_LIMIT_S = 30.0  # of one call
WAIT_LIMIT_S = 120.0  # of one call that waits for something other than a free core
CASES = 50
"""Cases of one process: what an earlier one left in memory must not count against a later one."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Result:
    """A case and all that came of it.

    Attributes:
        job: which case.
        words: what was made wrong.
        ended: how its calls ended, that of ONNX Runtime alone included.
        seconds: how long it took.
    """

    job: Job
    words: str = ""
    ended: list[Ended] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def alone(self) -> Ended | None:
        """How ONNX Runtime alone ended on the input, if it was asked."""
        return next((e for e in self.ended if e.call == ALONE), None)

    @property
    def calls(self) -> list[Ended]:
        """How the calls of onnxq ended."""
        return [e for e in self.ended if e.call != ALONE]


class Worker:
    """A process, and the case that it is at."""

    def __init__(self) -> None:
        self._child = _pool.Child(inside.serve)
        self._job: Job | None = None
        self._result: Result | None = None
        self._cases = 0
        self._call = ""
        self._began = self._began_case = 0.0
        self._began_used = _NOTHING

    @property
    def connection(self) -> Connection:
        """Pipe of the process."""
        return self._child.connection

    def give(self, job: Job) -> None:
        """Starts a case, in a new process if the old one is gone, or has had enough."""
        if not self._child.is_alive or self._cases >= CASES:
            self._renew()
        self._start(job, Result(job))

    def look(self, has_news: bool) -> Result | None:
        """Takes a message where there is one; the result, if the case is over."""
        if not has_news:
            stuck = self._stuck()
            return None if stuck is None else self._bury(stuck)
        try:
            return self._result if self._hear() else None
        except EOFError:
            return self._bury(None)

    def close(self) -> None:
        """Ends the process."""
        self._child.end()

    def _start(self, job: Job, result: Result) -> None:
        """Starts a case; what comes of it is added to the result."""
        self._job, self._result = job, result
        self._cases += 1
        self._call = "making the case"
        self._began_case = time.monotonic()
        self._mark()
        self.connection.send(job)

    def _renew(self) -> str:
        """Starts another process; how the one before had ended."""
        ended = self._child.end()
        self._child, self._cases = _pool.Child(inside.serve), 0
        return ended

    def _hear(self) -> bool:
        """Takes one message; whether the case is over.

        Raises:
            EOFError: the process is gone.
        """
        assert self._result is not None
        message: inside.Message = self.connection.recv()
        self._mark()
        if message is None:
            self._result.seconds += time.monotonic() - self._began_case
            return True
        if isinstance(message, Ended):
            self._result.ended.append(message)
        elif not self._result.words:
            self._result.words = message
        else:
            self._call = message
        return False

    def _stuck(self) -> Outcome | None:
        """HANG or MEMORY where the process is over a limit."""
        used, began = _usage(self._child.pid), self._began_used
        cpu_s, queued_s = used.cpu_s - began.cpu_s, used.queued_s - began.queued_s
        waited_s = time.monotonic() - self._began - cpu_s - queued_s
        if cpu_s > CPU_LIMIT_S or waited_s > WAIT_LIMIT_S:
            return Outcome.HANG
        return Outcome.MEMORY if used.resident > inside.LIMIT_BYTES else None

    def _bury(self, outcome: Outcome | None) -> Result | None:
        """The result of a case whose process is gone, or is ended now.

        None where ONNX Runtime alone is asked first whether it ends a process, too.
        """
        assert self._job is not None
        assert self._result is not None
        job, result = self._job, self._result
        ended = self._renew()
        result.ended.append(Ended(self._call, outcome or Outcome.CRASH, "" if outcome else ended))
        result.seconds += time.monotonic() - self._began_case
        if job.alone or result.alone is not None:
            return result
        self._start(replace(job, alone=True), result)
        return None

    def _mark(self) -> None:
        self._began = time.monotonic()
        self._began_used = _usage(self._child.pid)


class _Usage(NamedTuple):
    """Work of a process: CPU seconds, seconds that it waited for a core, resident bytes."""

    cpu_s: float
    queued_s: float
    resident: int


_NOTHING = _Usage(0.0, 0.0, 0)


def _usage(pid: int) -> _Usage:
    """Work of a process so far; nothing where it is gone."""
    files = (Path(f"/proc/{pid}/{name}") for name in ("stat", "statm", "schedstat"))
    try:
        stat, statm, schedule = (file.read_text(encoding="utf-8") for file in files)
        resident, queued_ns = int(statm.split()[1]), int(schedule.split()[1])
    except (OSError, IndexError):
        return _NOTHING
    fields = stat.rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return _Usage(ticks / _TICKS, queued_ns / 1e9, resident * _PAGE)


def run(jobs: Iterable[Job], processes: int) -> Iterator[Result]:
    """Results of all jobs, in the order in which they end."""
    return _pool.run(jobs, processes, Worker)
