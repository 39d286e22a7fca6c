"""Processes that run cases: forked from one that has imported everything, ended when stuck."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from scripts._confined import end_of
from scripts._fuzz import inside
from scripts._fuzz.inside import ALONE, Ended, Job, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CPU_LIMIT_S = 30.0  # of one call
WALL_LIMIT_S = 120.0  # of one call that waits for something, on a machine that others use too
POLL_S = 0.2
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
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=inside.serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.job: Job | None = None
        self.result: Result | None = None
        self.cases = 0
        self._call = ""
        self._began = self._began_cpu = self._began_case = 0.0

    def give(self, job: Job, result: Result | None = None) -> None:
        """Starts a case; what comes of it is added to the result."""
        self.job, self.result = job, result or Result(job)
        self.cases += 1
        self._call = "making the case"
        self._began_case = time.monotonic()
        self._mark()
        self.connection.send(job)

    def hear(self) -> bool:
        """Takes one message; whether the case is over.

        Raises:
            EOFError: the process is gone.
        """
        assert self.result is not None
        message: inside.Message = self.connection.recv()
        self._mark()
        if message is None:
            self.result.seconds += time.monotonic() - self._began_case
            return True
        if isinstance(message, Ended):
            self.result.ended.append(message)
        elif not self.result.words:
            self.result.words = message
        else:
            self._call = message
        return False

    def stuck(self) -> Outcome | None:
        """HANG or MEMORY where the process is over a limit."""
        if self.result is None:
            return None
        cpu, resident = _usage(self._process.pid or 0)
        if cpu - self._began_cpu > CPU_LIMIT_S or time.monotonic() - self._began > WALL_LIMIT_S:
            return Outcome.HANG
        return Outcome.MEMORY if resident > inside.LIMIT_BYTES else None

    def bury(self, outcome: Outcome | None) -> Result:
        """The result of a case whose process is gone, or is ended now."""
        assert self.result is not None
        self.end()
        detail = "" if outcome else end_of(self._process.exitcode)
        self.result.ended.append(Ended(self._call, outcome or Outcome.CRASH, detail))
        self.result.seconds += time.monotonic() - self._began_case
        return self.result

    @property
    def is_alive(self) -> bool:
        """Whether the process can take a further case."""
        return self._process.is_alive()

    def end(self) -> None:
        """Ends the process."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self.connection.close()

    def _mark(self) -> None:
        self._began = time.monotonic()
        self._began_cpu = _usage(self._process.pid or 0)[0]


def _usage(pid: int) -> tuple[float, int]:
    """(CPU seconds, resident bytes) of a process; zeros where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        resident = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError):
        return 0.0, 0
    return (int(fields[11]) + int(fields[12])) / _TICKS, resident * _PAGE


def run(jobs: Iterable[Job], processes: int) -> Iterator[Result]:
    """Results of all jobs, in the order in which they end."""
    waiting = iter(jobs)
    busy: dict[Connection, Worker] = {}
    for _ in range(processes):
        _next(Worker(), waiting, busy)
    while busy:
        ready = set(wait(list(busy), POLL_S))
        for connection, worker in list(busy.items()):
            result = _news(worker) if connection in ready else _overdue(worker)
            if result is None:
                continue
            del busy[connection]
            again = _to_ask_alone(worker, result)
            if again is None:
                yield result
                _next(worker if worker.is_alive else Worker(), waiting, busy)
            else:
                other = Worker()
                other.give(again, result)
                busy[other.connection] = other


def _news(worker: Worker) -> Result | None:
    """Takes a message; the result, if the case is over or the process gone."""
    try:
        return worker.result if worker.hear() else None
    except EOFError:
        return worker.bury(None)


def _overdue(worker: Worker) -> Result | None:
    """The result of a process that is over a limit, which is ended."""
    stuck = worker.stuck()
    return None if stuck is None else worker.bury(stuck)


def _to_ask_alone(worker: Worker, result: Result) -> Job | None:
    """The job that shows whether ONNX Runtime alone ends a process too, if this one is gone."""
    if worker.is_alive or worker.job is None or worker.job.alone or result.alone is not None:
        return None
    return replace(worker.job, alone=True)


def _next(worker: Worker, waiting: Iterator[Job], busy: dict[Connection, Worker]) -> None:
    job = next(waiting, None)
    if job is None:
        worker.end()
        return
    if worker.cases >= CASES:
        worker.end()
        worker = Worker()
    worker.give(job)
    busy[worker.connection] = worker
