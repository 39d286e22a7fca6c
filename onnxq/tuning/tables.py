"""Tables of a search: what groups of nodes cost, models that were measured, and their front."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.core.atomic import write_atomically
from onnxq.core.brief import size_text
from onnxq.core.saved import plain
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import OutputError, counted
from onnxq.operator import Precision
from onnxq.report.tables import print_table, shortened
from onnxq.tuning.scoring.objective_function import MARGIN_DB, SPARE_DB
from onnxq.tuning.scoring.score import db_text
from onnxq.tuning.search.left_in_float import WhyFloat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from onnxq.qconfig import QConfigMapping
    from onnxq.times.model_times import Times
    from onnxq.tuning.scoring.goal import Goal
    from onnxq.tuning.scoring.score import Score
    from onnxq.tuning.search.left_in_float import LeftInFloat
    from onnxq.tuning.search.quantization_groups import NodeGroup
    from onnxq.tuning.sensitivity import Sensitivity

MOST_ROWS = 12
"""Rows of a table; those beyond are counted."""
PRECISIONS = (Precision.FLOAT, Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.DYNAMIC_INT8)
"""Precisions with kernels of their own."""
MOST_NAMED = 8
"""Nodes of a group that are named; more do not fit a command that is typed."""
MICRO_NS = 1e3
SENSITIVITY_WORDS = (
    "dB alone: SQNR of the outputs with this group alone in integers; exact: no error"
)
PRECISION_WORDS = {
    Precision.INT8_FLOAT_OUTPUT: "int8_float_output: products of integers, results in float",
    Precision.DYNAMIC_INT8: "dynamic_int8: ranges found in each run",
}
"""Precisions whose names do not say all."""


def print_sensitivity(console: Console, sensitivity: Sensitivity) -> None:
    """A row of decibels for each group, the dearest first."""
    rows = [(cost.group, db_text(cost.worst_db)) for cost in sensitivity.costs]
    title = "what each group costs alone, the dearest first"
    _print_first(console, title, ("group of nodes", "dB alone"), rows)
    if rows:
        console.print(f"{SENSITIVITY_WORDS}\n")


def print_revert(console: Console, sensitivity: Sensitivity, groups: Iterable[NodeGroup]) -> None:
    """Options of `quantize` that leave the dearest of these groups in float; nothing without one.

    A group that was measured in parts, too, has a row for each part.
    """
    nodes = {group.name: group.nodes for group in groups}
    name = next((cost.group for cost in sensitivity.costs if cost.group in nodes), None)
    if name is None:
        return
    if len(nodes[name]) > MOST_NAMED:
        console.print(f"{name} has {len(nodes[name])} nodes: --json names those of every group\n")
        return
    options = " ".join(f"--exclude {shlex.quote(node)}" for node in nodes[name])
    console.print(f"to leave {name} in float, add this to 'onnxq quantize':")
    console.print(f"  {options}\n", soft_wrap=True)  # to be copied


def print_group_times(console: Console, times: Times, groups: Iterable[NodeGroup]) -> None:
    """A row of microseconds for each group, the slowest in float first."""
    found = [(group.name, times.by_precision(group.nodes)) for group in groups]
    known = [item for item in found if item[1]]
    known.sort(key=lambda item: -item[1].get(Precision.FLOAT, 0.0))
    shown = [precision for precision in PRECISIONS if any(precision in ns for _, ns in known)]
    rows = [
        (
            name,
            *(f"{ns[each] / MICRO_NS:.1f}" if each in ns else "-" for each in shown),
            f"{ns.get(Precision.FLOAT, 0.0) / times.float_ns if times.float_ns > 0 else 0:.0%}",
        )
        for name, ns in known
    ]
    header = ("group of nodes", *(precision.value for precision in shown), "of float's run")
    title = f"microseconds of each group, without conversions ({times.source})"
    _print_first(console, title, header, rows)
    words = [PRECISION_WORDS[precision] for precision in shown if precision in PRECISION_WORDS]
    console.print(f"{'; '.join([*words, '-: not measured in that precision'])}\n")


def _print_first(
    console: Console,
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: int = 0,
) -> None:
    """The first MOST_ROWS rows, a line that counts the others; the last `text` hold no numbers."""
    print_table(console, title, header, rows[:MOST_ROWS], numbers=range(1, len(header) - text))
    if len(rows) > MOST_ROWS:
        console.print(f"and {len(rows) - MOST_ROWS} more\n")


_POINT = re.compile(r"point-\d+\.yaml")


@dataclass(frozen=True)
class Milestone:
    """A model that was measured on the way."""

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
    """Writes point-1.yaml and on, and front.json; points of an earlier front there are removed."""
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
    for step in steps:
        changes = _shortly(step.changes) or "where it begins"
        rows.append((changes, *_figures(step.score, digits)))
    header = ("changes", "metric", "dB", "time", "size")
    _print_first(console, "models that were measured (~: time as predicted)", header, rows)


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
    lengths = itertools.accumulate(len(f"{change}, ") for change in changes)
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
    metric, db, time, size = _figures(score, digits)
    said = (
        "" if math.isinf(float_metric) else f"metric {metric} (float {float_metric:.{digits}f}), "
    )
    interval = ""
    if score.time_range is not None:
        low, high = score.time_range
        interval = f" ({low:.3f} to {high:.3f})"
    far = "equal to float" if score.worst_db == math.inf else f"{db} dB"
    return f"{said}{far}, {time}{interval} of float's time, {size}"


def print_left_in_float(
    console: Console, left: Sequence[LeftInFloat], score: Score, goal: Goal, *, more: str
) -> None:
    """A row for each layer type, and a line that says why more is kept than was asked for.

    `more`: option that searches on; empty: there is none.
    """
    if not left:
        return
    rows = [(each.group, f"{each.time:+.3f}", db_text(each.db), each.why.value) for each in left]
    title = "left in float, and what integers in each layer type alone would change, as predicted"
    header = ("group of nodes", "time", "dB then", "why it is in float")
    _print_first(console, title, header, rows, text=1)
    above = score.worst_db - (goal.min_sqnr_db if goal.min_sqnr_db is not None else math.inf)
    if more:
        why = f"layers may gain together, and the search ended before it tried that: try {more}"
    elif any(each.why is WhyFloat.NOT_FOUND for each in left):
        why = (
            "what is predicted to be faster was not where it was measured, or in no batch of "
            "changes"
        )
    else:
        why = "no others of these, alone or together, are predicted to be faster within the bound"
    if SPARE_DB < above < math.inf:
        console.print(f"note: it keeps {above:.1f} dB more than the bound: {why}")


def why_float(scores: Sequence[Score], goal: Goal, *, more: str) -> str:
    """Why a search chose the float model, and what to do, in words."""
    bound = goal.min_sqnr_db
    best = max(scores, key=lambda score: score.worst_db, default=None)
    if best is None:
        why = "no other model was measured"
    elif bound is not None and best.incomparable:
        return (
            f"{best.incomparable} in any of the {len(scores)} that were measured, and no bound in "
            "dB can be kept. Bound a metric of your own (--metric FILE.py:function --max-drop X)"
        )
    elif bound is not None and best.worst_db < bound + MARGIN_DB:
        why = (
            f"the most accurate quantized model of {len(scores)} keeps {db_text(best.worst_db)} "
            f"dB of the {bound:g} dB asked for, and the {MARGIN_DB:g} that the search adds"
        )
    elif goal.bounds_accuracy:
        better = "smaller" if goal.objective is Objective.SIZE else "faster"
        why = f"no quantized model of {len(scores)} keeps the bound and is {better}"
    else:
        why = f"no quantized model of {len(scores)} is better by this goal"
    wider = "a wider bound" if goal.bounds_accuracy else ""
    size = "" if goal.objective is Objective.SIZE else "--objective size (a smaller file)"
    ways = [more, wider, "--improve bias,smooth,round", size]
    return f"{why}. Try {', or '.join(way for way in ways if way)}"
