"""Each case in a process of its own, which may take so much time and memory and no more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scripts import _pool
from scripts._backend import cases
from scripts._backend.ways import WAYS, Ended, Outcome, run_case
from scripts._confined import confine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection

WALL_LIMIT_S = 120.0
LIMIT_BYTES = 4 << 30


def run(names: Iterable[str], processes: int) -> Iterator[list[Ended]]:
    """How all ways end with each case, in the order in which they end."""
    return _pool.run(names, processes, _Worker)


class _Worker:
    """A process for each case."""

    def __init__(self) -> None:
        self._child: _pool.Child | None = None
        self._name = ""
        self._until = 0.0

    @property
    def connection(self) -> Connection:
        """Pipe of the process."""
        assert self._child is not None, "a case was given"
        return self._child.connection

    def give(self, name: str) -> None:
        """Starts a process with the case."""
        self._name, self._until = name, time.monotonic() + WALL_LIMIT_S
        self._child = _pool.Child(_serve, name)

    def look(self, has_news: bool) -> list[Ended] | None:
        """How all ways ended, if they have."""
        assert self._child is not None, "a case was given"
        if not has_news and time.monotonic() <= self._until:
            return None
        try:
            ended = self.connection.recv() if has_news else None
        except EOFError:
            return self._all(Outcome.CRASH, self._child.end())
        self._child.end()
        if ended is None:
            return self._all(Outcome.HANG, f"more than {WALL_LIMIT_S:g} s")
        return list(ended)

    def close(self) -> None:
        """Nothing: the process of the last case has ended."""

    def _all(self, outcome: Outcome, detail: str) -> list[Ended]:
        return [Ended(self._name, way, outcome, detail) for way in WAYS]


def _serve(name: str, connection: Connection) -> None:
    confine(LIMIT_BYTES)
    connection.send(run_case(cases.case(name)))
