"""Milestones: models that a search measured, and their files."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.core.atomic import write_atomically
from onnxq.core.brief import size_text
from onnxq.core.saved import plain
from onnxq.errors import OutputError, counted
from onnxq.report.tables import print_table, shortened
from onnxq.tuning.scoring.score import db_text
from onnxq.tuning.sensitivity.group_tables import MOST_ROWS, count_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.scoring.score import Score

_POINT = re.compile(r"point-\d+\.yaml")


@dataclass(frozen=True)
class Milestone:
    """A model that was measured on the way.

    Attributes:
        changes: from where the search began, in words.
        score: on the samples of the search.
        qconfig: names the form of every node.
    """

    changes: tuple[str, ...]
    score: Score
    qconfig: QConfigMapping = field(repr=False)

    def to_dict(self) -> dict[str, object]:
        """Plain values; the qconfig as its YAML."""
        return {
            "changes": list(self.changes),
            "score": self.score.to_dict(),
            "qconfig": self.qconfig.to_yaml(),
        }


def save_milestones(folder: str | Path, points: Sequence[Milestone]) -> list[Path]:
    """Writes point-1.yaml and on, and front.json; points of an earlier front there are removed.

    Returns:
        the YAML files; `quantize --qconfig` makes the model of each.

    Raises:
        OutputError: the folder cannot be made or written to; the one that it is in has to be there.
    """
    folder = Path(folder)
    files = [folder / f"point-{number}.yaml" for number in range(1, len(points) + 1)]
    try:
        folder.mkdir(exist_ok=True)
        for old in [path for path in folder.iterdir() if _POINT.fullmatch(path.name)]:
            if old not in files:
                old.unlink()
    except OSError as error:
        raise OutputError(f"'{folder}' cannot be made: {error.strerror or error}.") from error
    for file, point in zip(files, points, strict=True):
        _write(file, point.qconfig.to_yaml())
    shown = [
        {"file": file.name, "changes": list(point.changes), "score": point.score.to_dict()}
        for file, point in zip(files, points, strict=True)
    ]
    _write(folder / "front.json", json.dumps(plain(shown), indent=1, allow_nan=False))
    return files


def _write(file: Path, text: str) -> None:
    write_atomically(file, lambda opened: opened.write(text.encode()))


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
