"""Runs in turns, so that a busy machine slows all of them alike; times in CPU seconds.

A turn of a short run is several, of which the first is not counted: it finds the caches full of
the others' data, as no application has them that runs one model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.core.arrays import Array
    from onnxq.ort.runtime import Session


TURN_S = 0.002
"""CPU seconds of one turn, at least: what takes longer runs once."""
MOST_IN_TURN = 20
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Schedule of a measurement.

    Attributes:
        rounds: turns of each run.
        repeats: of each run in a turn, behind one that is not counted if they are several.
    """

    rounds: int
    repeats: tuple[int, ...]


def repeats_of(seconds: float) -> int:
    """How often a run that takes so long runs in a turn."""
    return min(max(1, round(TURN_S / max(seconds, 1e-6))), MOST_IN_TURN)


def round_seconds(once: Sequence[float], repeats: Sequence[int]) -> float:
    """CPU seconds of a turn of each run."""
    return sum(each * (n + (n > 1)) for each, n in zip(once, repeats, strict=True))


def taken(run: Run) -> float:
    """CPU seconds of one run, on this thread."""
    start = time.thread_time()
    run()
    return max(time.thread_time() - start, 1e-6)


def taking_turns(runs: Sequence[Run], schedule: Schedule) -> list[list[float]]:
    """CPU seconds of one run of each, in each round; every second round goes backwards.

    Returns:
        a list of `schedule.rounds` seconds for each run.
    """
    found: list[list[float]] = [[] for _ in runs]
    order = list(range(len(runs)))
    for turn in range(schedule.rounds):
        for index in order if turn % 2 else reversed(order):
            repeats = schedule.repeats[index]
            if repeats > 1:
                runs[index]()
            start = time.thread_time()
            for _ in range(repeats):
                runs[index]()
            found[index].append((time.thread_time() - start) / repeats)
    return found


# --- Times of sessions in turns, so that a busy machine slows all of them alike


@dataclass(frozen=True, slots=True)
class PairedTimes:
    """CPU seconds of sessions that took turns.

    Attributes:
        seconds: per session, one entry per round: of one run.
    """

    seconds: Mapping[str, tuple[float, ...]]

    def median_s(self, name: str) -> float:
        """Median CPU seconds of one run."""
        return float(np.median(self.seconds[name]))

    def ratio(self, slow: str, fast: str) -> float:
        """How many times faster `fast` is: the ratio of the medians."""
        return self.median_s(slow) / self.median_s(fast)


def paired_times(
    sessions: Mapping[str, Session], feeds: Mapping[str, Mapping[str, Array]], rounds: int
) -> PairedTimes:
    """CPU time of each session, in turns.

    Open the sessions with threads=1: the CPU time is that of the calling thread.

    Args:
        sessions: name -> session.
        feeds: name -> {input name: array}, of each session.
        rounds: turns of each, after two runs that are not counted.
    """
    runs = [partial(session.run, feeds[name]) for name, session in sessions.items()]
    once = [taken(run) for run in runs for _ in range(2)][1::2]  # the first run gets memory
    found = taking_turns(runs, Schedule(rounds, tuple(map(repeats_of, once))))
    return PairedTimes(
        MappingProxyType({name: tuple(each) for name, each in zip(sessions, found, strict=True)})
    )
