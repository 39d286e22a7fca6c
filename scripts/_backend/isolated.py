"""Each case in a process of its own, which may take so much time and memory and no more."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from scripts._backend import cases
from scripts._backend.ways import WAYS, Ended, Outcome, run_case
from scripts._confined import confine, end_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.context import ForkProcess

WALL_LIMIT_S = 120.0
LIMIT_BYTES = 4 << 30
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class _Running:
    process: ForkProcess
    name: str
    until: float


def run(names: Iterable[str], processes: int) -> Iterator[list[Ended]]:
    """How all ways end with each case, in the order in which they end."""
    waiting = iter(names)
    busy: dict[Connection, _Running] = {}
    for name in waiting:
        connection, running = _start(name)
        busy[connection] = running
        while len(busy) >= processes:
            yield from _finished(busy)
    while busy:
        yield from _finished(busy)


def _start(name: str) -> tuple[Connection, _Running]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(name, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, _Running(process, name, time.monotonic() + WALL_LIMIT_S)


def _finished(busy: dict[Connection, _Running]) -> Iterator[list[Ended]]:
    ready = set(wait(list(busy), POLL_S))
    for connection, running in list(busy.items()):
        if connection in ready:
            try:
                ended = connection.recv()
            except EOFError:
                running.process.join()
                ended = _all(running.name, Outcome.CRASH, end_of(running.process.exitcode))
        elif time.monotonic() > running.until:
            ended = _all(running.name, Outcome.HANG, f"more than {WALL_LIMIT_S:g} s")
        else:
            continue
        running.process.kill()
        running.process.join()
        connection.close()
        del busy[connection]
        yield ended


def _serve(name: str, connection: Connection) -> None:
    confine(LIMIT_BYTES)
    connection.send(run_case(cases.case(name)))


def _all(name: str, outcome: Outcome, detail: str) -> list[Ended]:
    return [Ended(name, way, outcome, detail) for way in WAYS]
