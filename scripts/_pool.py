"""Processes that work off jobs: forked from one that has imported everything, ended when stuck."""

from __future__ import annotations

import multiprocessing
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Protocol, TypeVar

from scripts._confined import end_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

POLL_S = 0.2

Job = TypeVar("Job", contravariant=True)  # one word for what it is
Result = TypeVar("Result", covariant=True)  # likewise


class Child:
    """A forked process, and our end of the pipe to it.

    Args:
        serve: what it runs, with the arguments and its end of the pipe.
        arguments: of `serve`, ahead of the pipe.
    """

    def __init__(self, serve: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(*arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid or 0

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.is_alive()

    def end(self) -> str:
        """Ends the process; how it had ended before, in words."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self.connection.close()
        return end_of(self._process.exitcode)


class Worker(Protocol[Job, Result]):
    """A process at one job after the other, or a process for each."""

    @property
    def connection(self) -> Connection:
        """Pipe of the process that is at the job."""

    def give(self, job: Job) -> None:
        """Starts a job."""

    def look(self, has_news: bool) -> Result | None:
        """Takes a message where there is one; the result, if the job is over."""

    def close(self) -> None:
        """Ends the process."""


def run(
    jobs: Iterable[Job], processes: int, new: Callable[[], Worker[Job, Result]]
) -> Iterator[Result]:
    """Results of all jobs, in the order in which they end.

    Args:
        jobs: to be given to workers.
        processes: at a time.
        new: makes a worker.
    """
    waiting = iter(jobs)
    busy: list[Worker[Job, Result]] = []
    for job in islice(waiting, processes):
        busy.append(new())
        busy[-1].give(job)
    while busy:
        ready = set(wait([worker.connection for worker in busy], POLL_S))
        for worker in list(busy):
            result = worker.look(worker.connection in ready)
            if result is None:
                continue
            yield result
            following = next(waiting, None)
            if following is None:
                worker.close()
                busy.remove(worker)
            else:
                worker.give(following)
