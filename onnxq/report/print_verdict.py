"""The answer of a command that quantizes: what was written, the verdict, and what to do next.

    m.int8.onnx: quantized for x86-vnni, 1.15 MB -> 317.53 kB
    verdict: it runs: 52 of its 52 nodes compute in integers; 28% of the float model's size, ...
      beside float, on 16 of 256 calibration samples:
        output 'linear': SQNR 33.5 dB, 2.11% away from float; same top-1 in 100.0%
    next: onnxq report m.onnx m.int8.onnx x.npz -o m.int8.html   # what costs accuracy and time

At most MOST_ROWS rows on a terminal of 80 columns: what matters least is left out first, and -v
shows it with everything else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxq.quantized.verdict import InputSource
from onnxq.report.console import ops_of
from onnxq.report.detail import is_whole
from onnxq.report.wrapping import wrapped
from onnxq.weights.mixed_bits import CHOICES, FLOAT_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from onnxq.checking.summary import Summary
    from onnxq.quantized.outcome import Outcome
    from onnxq.quantized.verdict import Verdict
    from onnxq.weights.mixed_bits import Mix, Mixed

MOST_ROWS = 12
COLUMNS = 80
MOST_OUTPUTS = 2
STEP_DB = 5
"""Suggested SQNR goals are multiples of this."""
ENOUGH_DB = 40.0
"""An error of 1%: no more is suggested."""
LOW_GOAL_DB = 20
"""The SQNR that is suggested where the outputs give none."""
AS_METRIC = ("boxes", "masks")
"""Answers that say more than decibels do: metrics of `tune` by the same name."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an answer.

    Attributes:
        rank: lines of the largest rank go first where not all fit; those of rank 0 stay.
        is_command: it is there to be copied, and so never broken.
    """

    text: str
    rank: int = 0
    is_command: bool = False

    @property
    def rows(self) -> int:
        """Rows on a terminal."""
        if self.is_command:
            return -(-len(self.text) // COLUMNS)
        return wrapped(self.text, COLUMNS).count("\n") + 1


NEXT_INDENT = "      "


def print_answer(console: Console, lines: Iterable[Line]) -> None:
    """Prints what fits of an answer; all of it where every row is to be shown."""
    for line in lines if is_whole() else fitting(list(lines)):
        console.print(line.text, soft_wrap=True if line.is_command else None)


def fitting(lines: Sequence[Line], most_rows: int = MOST_ROWS) -> list[Line]:
    """The lines, without those of the largest rank where there are too many rows."""
    kept = list(lines)
    while sum(line.rows for line in kept) > most_rows:
        rank = max(line.rank for line in kept)
        if not rank:
            break
        del kept[max(place for place, line in enumerate(kept) if line.rank == rank)]
    return kept


def verdict_lines(verdict: Verdict) -> Iterator[Line]:
    """The verdict: its headline, the worst outputs, remarks."""
    yield Line(f"verdict: {verdict.headline}")
    most = len(verdict.outputs) if is_whole() else MOST_OUTPUTS
    answers = {f"  {each}": f"  {replace(each, layout='')}" for each in verdict.answers}
    for place, line in enumerate(verdict.beside_float(most)):
        rank = 0 if place < MOST_OUTPUTS or line in answers else 2
        yield Line(f"  {line if is_whole() else answers.get(line, line)}", rank)
    if verdict.input_source in (InputSource.MADE_UP, InputSource.NONE) and not verdict.is_float:
        yield Line("  without samples nothing is known of its accuracy: give some with --check")
    for remark in verdict.remarks():
        yield Line(f"  {remark}", 1)
    if verdict.collapse is not None and not verdict.is_float:
        yield Line(f"  {verdict.collapse}", 1)


def float_lines(summary: Summary) -> Iterator[Line]:
    """The worst reason for nodes in float; none where it could not be otherwise."""
    worst = summary.worst_float
    if worst is not None:
        count = f"{len(worst.nodes)} " if len(worst.op_types) == 1 else ""
        yield Line(f"in float: {count}{ops_of(worst)}: {worst.words}", 3)


def next_lines(commands: Sequence[str]) -> Iterator[Line]:
    """Commands to go on with, the first of them in any case; what they are for, where it fits."""
    for place, command in enumerate(commands):
        text = f"{NEXT_INDENT if place else 'next: '}{command}"
        both = [
            Line(t, 2 * bool(place), is_command=True) for t in (text, text.partition("   #")[0])
        ]
        yield both[0] if is_whole() else min(both, key=lambda line: line.rows)


def next_goal(verdict: Verdict) -> list[str]:
    """Options of `tune` that ask for more than a model reaches; none: nothing is to be gained.

    Half as many other boxes or masks, where the outputs are such; else the next SQNR.
    """
    judged = [each for each in verdict.answers if each.kind in AS_METRIC]
    if judged:
        worst = min(judged, key=lambda answers: answers.value)
        drop = f"{(1 - worst.value) / 2:.1g}"
        return ["--metric", worst.kind, "--max-drop", drop] if worst.value < 1 else []
    worst_db = verdict.worst_db
    if worst_db >= ENOUGH_DB or not verdict.outputs:
        return []
    known = math.isfinite(worst_db)
    goal = STEP_DB * (math.floor(max(worst_db, 0.0) / STEP_DB) + 1) if known else LOW_GOAL_DB
    return ["--min-sqnr", str(goal)]


# --- Rows of a table on PTQ algorithms of weights


def algorithm_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """(algorithm, node or site, kept, dB before and after, why) of each outcome."""
    return [
        (
            outcome.algorithm,
            outcome.place or "(outputs)",
            "yes" if outcome.kept else "no",
            _decibels(outcome.before_db),
            _decibels(outcome.after_db),
            outcome.why,
        )
        for outcome in outcomes
    ]


def _decibels(db: float | None) -> str:
    return "" if db is None else f"{db:.1f}"


# --- Tables of mixed bits: what each size costs, and what was chosen


CHOSEN = "chosen"


def mixed_rows(mixed: Mixed) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(header, rows) of the front, in the order of its sizes, and of the choice among it."""
    header = ("", "average bits", "MB", "predicted dB", *(_name(bits) for bits in CHOICES))
    mixes = [("", mix) for mix in mixed.front if mix.bits != mixed.chosen.bits]
    ordered = sorted([*mixes, (CHOSEN, mixed.chosen)], key=lambda row: row[1].size_bytes)
    return header, [_row(*each) for each in ordered]


def _row(mark: str, mix: Mix) -> tuple[str, ...]:
    counts = mix.counts
    size, noise = f"{mix.size_bytes / 1e6:.2f}", f"{mix.sqnr_db:.1f}"
    return (mark, f"{mix.average:.2f}", size, noise, *(str(counts[bits]) for bits in CHOICES))


def _name(bits: int) -> str:
    return "float" if bits == FLOAT_BITS else f"{bits} bits"


def mixed_json(mixed: Mixed) -> dict[str, object]:
    """Plain values of the table for programs, with the bits of every layer."""
    return {
        "front": [_values(mix) for mix in mixed.front],
        "chosen": {**_values(mixed.chosen), "bits": dict(mixed.chosen.bits)},
    }


def _values(mix: Mix) -> dict[str, object]:
    return {
        "bits_average": mix.average,
        "weight_bytes": mix.size_bytes,
        "predicted_sqnr_db": None if mix.noise <= 0 else mix.sqnr_db,
        "linear_layers": {_name(bits): count for bits, count in mix.counts.items()},
    }
