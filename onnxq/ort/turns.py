"""Runs in turns, so that a busy machine slows all of them alike; times in CPU seconds.

A turn of a short run is several, of which the first is not counted: it finds the caches full of
the others' data, as no application has them that runs one model. All turns have equally many runs,
as many as the fastest model needs and time pays for: else it alone finds warm caches, and equal
models differ by 10%.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

TURN_S = 0.002
"""CPU seconds of one turn, at least: what takes longer runs once."""
MOST_IN_TURN = 20
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Schedule of a measurement."""

    rounds: int
    repeats: tuple[int, ...]

    @classmethod
    def within(cls, seconds: float, once: Sequence[float], least: int, most: int) -> Self:
        """The schedule that so many CPU seconds pay for, of runs that take `once` each."""
        paid = int(seconds / max(least, 1) / sum(once)) - 1
        repeats = (max(1, min(max(map(repeats_of, once)), paid)),) * len(once)
        rounds = int(seconds / round_seconds(once, repeats))
        return cls(min(max(rounds, least), most), repeats)


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
    """CPU seconds of one run of each, in each round; every second round goes backwards."""
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
