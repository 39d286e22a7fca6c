"""Score of a model that was quantized with one mapping; an Evaluator gives it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from onnxq.core.saved import Saved

SAME = 0.03
"""Share of a time by which the medians of whole runs of one file differ, on a busy machine."""


@dataclass(frozen=True)
class Score(Saved):
    """Measurements of one quantized model on one set of samples.

    Attributes:
        metric: of the Metric that was asked for; higher is better.
        sqnr_db: output name -> dB, of every output of floats; inf: nothing differs; NaN: it cannot
            be compared (another shape, or numbers that are not finite).
        time_ratio: time over the float model's, predicted (see Times) or that of whole runs; None:
            no times are known.
        time_range: interval of 95% for the time of whole runs; None: it is predicted.
        predicted_time: what was predicted where whole runs were timed, too.
    """

    FORMAT: ClassVar[str] = "onnxq score 1"
    NOUN: ClassVar[str] = "a score"
    ANEW: ClassVar[str] = "Begin a new journal."

    metric: float
    sqnr_db: Mapping[str, float] = field(hash=False)
    size_bytes: int
    time_ratio: float | None = None
    time_range: tuple[float, float] | None = None
    predicted_time: float | None = None

    def time_beyond(self, bound: float) -> float:
        """Share of float's time that it takes beyond a bound; inf where no time is known.

        Of whole runs, a median within SAME of the bound is none where its interval reaches it: the
        float model itself takes 1.01 of its time as often as 0.99.
        """
        if self.time_ratio is None:
            return math.inf
        if self.time_range is not None and self.time_range[0] <= bound:
            bound *= 1 + SAME
        return max(0.0, self.time_ratio - bound)

    def timed(self, ratio: float, interval: tuple[float, float]) -> Score:
        """The score with the time of whole runs."""
        predicted = self.time_ratio if self.time_range is None else self.predicted_time
        return replace(self, time_ratio=ratio, time_range=interval, predicted_time=predicted)

    @property
    def likeness(self) -> tuple[object, ...]:
        """Key that scores of one file share: its numbers, its bytes, and its predicted time.

        Files may have several mappings: another scale of weights that are in float changes nothing.
        """
        predicted = self.time_ratio if self.time_range is None else self.predicted_time
        return self.metric, tuple(sorted(self.sqnr_db.items())), self.size_bytes, predicted

    @property
    def worst_db(self) -> float:
        """Least SQNR of all outputs; -inf where one cannot be compared, inf where there is none."""
        return least_db(self.sqnr_db.values())

    @property
    def incomparable(self) -> str:
        """Outputs that cannot be compared with the float model's, in words; empty: none."""
        names = [f"'{name}'" for name, db in self.sqnr_db.items() if math.isnan(db)]
        if not names:
            return ""
        which = f"output {names[0]}" if len(names) == 1 else f"outputs {', '.join(names)}"
        return f"{which} cannot be compared with float's (another shape, or numbers not finite)"

    def __str__(self) -> str:
        time = "" if self.time_ratio is None else f", {self.time_ratio:.2f} of float's time"
        size = f"{self.size_bytes / 1e6:.2f} MB"
        return f"metric {self.metric:.5g}, {self.worst_db:.1f} dB, {size}{time}"


def db_text(value: float, digits: int = 1) -> str:
    """Decibels for people; exact: nothing differs, lost: all does, -: nobody saw it."""
    if math.isinf(value):
        return "exact" if value > 0 else "lost"
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def least_db(found: Iterable[float]) -> float:
    """Least of the decibels of several tensors; -inf where one is NaN, inf where there is none."""
    return min((-math.inf if math.isnan(db) else db for db in found), default=math.inf)
