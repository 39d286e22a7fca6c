"""Times of sessions in turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from onnxq.ort.turns import Schedule, repeats_of, taken, taking_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.ort.runtime import Session


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

    Raises:
        CalibrationError: a session does not run on the feeds.
    """
    runs = [partial(session.run, feeds[name]) for name, session in sessions.items()]
    once = [taken(run) for run in runs for _ in range(2)][1::2]  # the first run gets memory
    found = taking_turns(runs, Schedule(rounds, tuple(map(repeats_of, once))))
    return PairedTimes(
        MappingProxyType({name: tuple(each) for name, each in zip(sessions, found, strict=True)})
    )
