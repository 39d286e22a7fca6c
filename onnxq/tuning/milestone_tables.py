"""Tables of the models that a search measured, and of its front."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from onnxq.core.brief import size_text
from onnxq.errors import counted
from onnxq.report.tables import print_table, shortened
from onnxq.tuning.scoring.score import db_text
from onnxq.tuning.sensitivity.group_tables import MOST_ROWS, count_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.milestone import Milestone
    from onnxq.tuning.scoring.score import Score

CHANGES_WIDTH = 66
"""Columns that the changes of one model have in a table; those beyond are counted."""
FRONT_HEADER = ("point", "metric", "dB", "time", "size", "")


def print_steps(console: Console, steps: Sequence[Milestone], digits: int) -> None:
    """The models in the order in which they were measured, metrics with so many decimals."""
    rows = []
    for step in steps[:MOST_ROWS]:
        changes = _shortly(step.changes) or "where it begins"
        rows.append((changes, *_figures(step.score, digits)))
    header = ("changes", "metric", "dB", "time", "size")
    print_table(
        console,
        "models that were measured (~: time as predicted)",
        header,
        rows,
        numbers=(1, 2, 3, 4),
    )
    count_others(console, len(steps))


def print_front(
    console: Console, front: Sequence[Milestone], chosen: QConfigMapping, digits: int
) -> None:
    """The front, the chosen point marked."""
    title = "front: no other is as accurate, as fast and as small"
    rows = list(front_rows(front, chosen, digits))
    print_table(console, title, FRONT_HEADER, rows, numbers=(1, 2, 3, 4))


def front_rows(
    front: Sequence[Milestone], chosen: QConfigMapping, digits: int
) -> Iterator[tuple[str, ...]]:
    """Rows under FRONT_HEADER."""
    for number, point in enumerate(front, 1):
        mark = "chosen" if point.qconfig == chosen else ""
        yield f"point-{number}", *_figures(point.score, digits), mark


def _shortly(changes: Sequence[str]) -> str:
    """The first changes, as many as a row has place for, and how many more there are."""
    lengths = itertools.accumulate(len(change) for change in changes)
    most = sum(length <= CHANGES_WIDTH for length in lengths)
    first = [shortened(change, CHANGES_WIDTH) for change in changes[:1]]
    return counted([*first, *changes[1:]], max(most, 1))


def _figures(score: Score, digits: int) -> tuple[str, str, str, str]:
    return (
        db_text(score.metric, digits),
        db_text(score.worst_db),
        _time(score),
        size_text(score.size_bytes),
    )


def _time(score: Score) -> str:
    """Share of float's time; ~: predicted."""
    if score.time_ratio is None:
        return "-"
    return f"{'~' if score.time_range is None else ''}{score.time_ratio:.3f}"


def score_words(score: Score, float_metric: float, digits: int) -> str:
    """A score in a sentence, beside the float model's metric."""
    beside = "" if math.isinf(float_metric) else f" (float {float_metric:.{digits}f})"
    metric, db, time, size = _figures(score, digits)
    interval = ""
    if score.time_range is not None:
        low, high = score.time_range
        interval = f" ({low:.3f} to {high:.3f})"
    return f"metric {metric}{beside}, {db} dB, {time}{interval} of float's time, {size}"
