"""Tuned: a model that a search chose, the points that it chose from, and their report."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.core.atomic import write_atomically
from onnxq.core.saved import plain
from onnxq.errors import OutputError, counted
from onnxq.report.console import open_console, print_table, size_text
from onnxq.tuning.score import db_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from onnxq.qconfig import QConfigMapping
    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.tuning.goal import Goal
    from onnxq.tuning.score import Score
    from onnxq.tuning.sensitivity import Sensitivity
    from onnxq.tuning.times import Times


MOST_ROWS = 12
"""Rows of a table; those beyond are counted."""
MOST_MOVES = 2
"""Moves of one model that a table names; those beyond are counted."""


class MissedGoalWarning(UserWarning):
    """A search ended without a model that keeps the bounds of its goal."""


@dataclass(frozen=True)
class Milestone:
    """A model that was measured on the way.

    Attributes:
        moves: from where the search began, in words.
        score: on the samples of the search.
        qconfig: names the form of every node.
    """

    moves: tuple[str, ...]
    score: Score
    qconfig: QConfigMapping = field(repr=False)

    def to_dict(self) -> dict[str, object]:
        """Plain values; the qconfig as its YAML."""
        return {
            "moves": list(self.moves),
            "score": self.score.to_dict(),
            "qconfig": self.qconfig.to_yaml(),
        }


@dataclass(frozen=True)
class Checked:
    """Scores of the float model and of the chosen one, on samples that chose nothing.

    Attributes:
        where: these samples come from.
        float_metric: the float model's.
        score: the chosen model's.
    """

    where: str
    float_metric: float
    score: Score


@dataclass(frozen=True)
class Spent:
    """Work that a search took.

    Attributes:
        runs: models that were quantized and run on all samples of the search; those on fewer count
            by their share.
        cpu_s: CPU seconds of this process, other processes not counted.
        pass_s: CPU seconds of the float model on the same samples.
    """

    runs: float
    cpu_s: float
    pass_s: float

    def __str__(self) -> str:
        passes = self.cpu_s / max(self.pass_s, 1e-9)
        return (
            f"{self.runs:.1f} runs, {self.cpu_s:.1f} CPU seconds: {passes:.0f} times the float "
            "model on these samples"
        )


@dataclass(frozen=True)
class Tuned:
    """A quantized model that a search chose.

    Attributes:
        model: the best one, with its verdict.
        qconfig: names the form of every node: `quantize` with it, and with the samples that were
            calibrated on, gives the model byte for byte.
        score: on the samples of the search.
        held_apart: on samples that chose nothing: what the goal was checked on.
        float_metric: the float model's, on the samples of the search.
        missed: bounds that it does not keep, on either samples, in words; empty: it keeps all.
        steps: every model that was measured, in order; the first is where the search began.
        front: those of which no other is as accurate, as fast and as small; most accurate first.
        sensitivity: what each group of nodes costs alone.
        times: what each node takes in each form.
        goal: as it was asked for.
        labels: names of arrays in the samples that are no inputs.
        refused: (moves, why) of each model that could not be made, or did not run.
        why: the search ended, in words.
        spent: work that it took; it differs from run to run.
    """

    model: QuantizedModel = field(repr=False, compare=False)
    qconfig: QConfigMapping = field(repr=False)
    score: Score
    held_apart: Checked
    float_metric: float
    missed: tuple[str, ...]
    steps: tuple[Milestone, ...] = field(repr=False)
    front: tuple[Milestone, ...] = field(repr=False)
    sensitivity: Sensitivity = field(repr=False)
    times: Times | None = field(repr=False)
    goal: Goal
    labels: tuple[str, ...] = ()
    refused: tuple[tuple[tuple[str, ...], str], ...] = ()
    why: str = ""
    spent: Spent = field(default=Spent(0.0, 0.0, 1.0), compare=False)

    def save(self, path: str | Path) -> None:
        """Writes the model.

        Raises:
            OutputError: the path cannot be written.
        """
        self.model.save(path)

    def save_front(self, folder: str | Path) -> list[Path]:
        """Writes the front as point-1.yaml and on, the most accurate first, and front.json.

        Returns:
            the YAML files; `quantize --qconfig` makes the model of each.

        Raises:
            OutputError: the folder cannot be made or written to.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"'{folder}' cannot be made: {error.strerror or error}.") from error
        files = []
        for number, point in enumerate(self.front, 1):
            files.append(folder / f"point-{number}.yaml")
            _write(files[-1], point.qconfig.to_yaml())
        points = [
            {"file": file.name, "moves": list(point.moves), "score": point.score.to_dict()}
            for file, point in zip(files, self.front, strict=True)
        ]
        _write(folder / "front.json", json.dumps(plain(points), indent=1, allow_nan=False))
        return files

    def report(self) -> str:
        """The stages as tables: what costs what, the steps, the front, and what was chosen."""
        file = io.StringIO()
        print_tuned(open_console(file), self)
        return file.getvalue()

    def to_dict(self) -> Mapping[str, object]:
        """Plain values of all but the model."""
        return {
            "goal": plain(self.goal),
            "missed": list(self.missed),
            "score": plain(self.score),
            "held_apart": plain(
                {
                    "where": self.held_apart.where,
                    "float_metric": self.held_apart.float_metric,
                    "score": self.held_apart.score,
                }
            ),
            "float_metric": plain(self.float_metric),
            "steps": [plain(step) for step in self.steps],
            "front": [plain(point) for point in self.front],
            "sensitivity": plain(self.sensitivity),
            "times": plain(self.times),
            "refused": [{"moves": list(moves), "why": why} for moves, why in self.refused],
            "why": self.why,
            "spent": {
                "runs": self.spent.runs,
                "cpu_s": self.spent.cpu_s,
                "pass_s": self.spent.pass_s,
            },
        }


def _write(file: Path, text: str) -> None:
    write_atomically(file, lambda opened: opened.write(text.encode()))


def print_tuned(console: Console, tuned: Tuned) -> None:
    """Sensitivity, steps, front, and both scores of what was chosen."""
    _print_sensitivity(console, tuned)
    _print_steps(console, tuned)
    _print_front(console, tuned)
    for move in _chosen_moves(tuned):
        console.print(f"chosen: {move}", soft_wrap=True)
    apart = tuned.held_apart
    console.print(f"goal: {tuned.goal}")
    console.print(f"on the samples of the search: {_words(tuned.score, tuned.float_metric)}")
    console.print(f"on {apart.where}: {_words(apart.score, apart.float_metric)}")
    if tuned.model.verdict is not None:
        console.print(f"verdict: {next(iter(tuned.model.verdict.sentences()))}", soft_wrap=True)
    for missed in tuned.missed:
        console.print(f"missed: {missed}")
    console.print(f"it ended because {tuned.why}; {tuned.spent}", soft_wrap=True)
    for moves, why in tuned.refused:
        console.print(f"note: not possible: {'; '.join(moves)}: {why}", soft_wrap=True)
    for note in (*tuned.sensitivity.notes, *(tuned.times.notes if tuned.times else ())):
        console.print(f"note: {note}", soft_wrap=True)


def _print_sensitivity(console: Console, tuned: Tuned) -> None:
    costs = tuned.sensitivity.costs
    rows = [
        (cost.group, db_text(cost.worst_db), db_text(cost.own_db), db_text(cost.inherited_db))
        for cost in costs[:MOST_ROWS]
    ]
    header = ("group of nodes", "dB alone", "own dB", "inherited dB")
    title = "what each group costs alone, the dearest first"
    print_table(console, title, header, rows, numbers=(1, 2, 3))
    _count(console, len(costs))


def _print_steps(console: Console, tuned: Tuned) -> None:
    rows = []
    for step in tuned.steps[:MOST_ROWS]:
        moves = counted(step.moves, MOST_MOVES) or "where it begins"
        rows.append((moves, *_figures(step.score)))
    header = ("moves", "metric", "dB", "time", "size")
    print_table(console, "models that were measured", header, rows, numbers=(1, 2, 3, 4))
    _count(console, len(tuned.steps))


def _print_front(console: Console, tuned: Tuned) -> None:
    rows = [
        (f"point-{number}", *_figures(point.score), _chosen(tuned, point))
        for number, point in enumerate(tuned.front, 1)
    ]
    header = ("point", "metric", "dB", "time", "size", "")
    title = "front: no other is as accurate, as fast and as small"
    print_table(console, title, header, rows, numbers=(1, 2, 3, 4))


def _chosen_moves(tuned: Tuned) -> tuple[str, ...]:
    """The moves to the best model, in words."""
    found = next((step for step in tuned.steps if step.qconfig == tuned.qconfig), None)
    return ("where it begins",) if found is None or not found.moves else found.moves


def _chosen(tuned: Tuned, point: Milestone) -> str:
    return "chosen" if point.qconfig == tuned.qconfig else ""


def _count(console: Console, rows: int) -> None:
    if rows > MOST_ROWS:
        console.print(f"and {rows - MOST_ROWS} more\n")


def _figures(score: Score) -> tuple[str, str, str, str]:
    time = "-" if score.time_ratio is None else f"{score.time_ratio:.3f}"
    return db_text(score.metric, 4), db_text(score.worst_db), time, size_text(score.size_bytes)


def _words(score: Score, float_metric: float) -> str:
    beside = "" if math.isinf(float_metric) else f" (float {float_metric:.5g})"
    metric, db, time, size = _figures(score)
    return f"metric {metric}{beside}, {db} dB, {time} of float's time, {size}"
