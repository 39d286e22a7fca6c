"""Times of sessions in turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.ort.runtime import Session


@dataclass(frozen=True, slots=True)
class PairedTimes:
    """CPU seconds of sessions that took turns.

    Attributes:
        seconds: per session, one entry per round; the process's CPU time, all threads.
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
    """CPU time of each session, in turns (A B A B ...) so that a busy machine slows all alike.

    Open the sessions with threads=1: CPU time counts every thread, spinning ones included.

    Args:
        sessions: name -> session.
        feeds: name -> {input name: array}, of each session.
        rounds: runs of each, after two that are not counted.

    Raises:
        CalibrationError: a session does not run on the feeds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(-2, rounds):
        for name, session in sessions.items():
            start = time.process_time()
            session.run(feeds[name])
            if turn >= 0:
                seconds[name].append(time.process_time() - start)
    return PairedTimes(MappingProxyType({name: tuple(times) for name, times in seconds.items()}))
