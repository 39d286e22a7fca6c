"""A verdict for people: what the run showed, its bits, and the command to go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.quantized.verdict import InputSource
from onnxq.weights.mixed_bits import CHOICES, FLOAT_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from onnxq.quantized.outcome import Outcome
    from onnxq.quantized.verdict import Verdict
    from onnxq.weights.mixed_bits import Mix, Mixed


def print_verdict(console: Console, verdict: Verdict, source: Path, file: Path) -> None:
    """The verdict line by line, then what to do next."""
    first, *more = verdict.sentences()
    lines = [f"verdict: {first}", *(f"  {line}" for line in more)]
    if verdict.input_source in (InputSource.MADE_UP, InputSource.NONE):
        lines.append("  without samples nothing is known of its accuracy: give --check SAMPLES")
    for line in lines:
        console.print(line)
    commands = [
        f"next: onnxq verify {source} {file} SAMPLES   # every tensor beside float",
        f"      onnxq bench {source} {file} SAMPLES    # speed, in pairs of runs",
        f"      onnxq report {source} {file} SAMPLES -o report.html   # what costs what",
        f"      onnxq tune {source} SAMPLES -o OUT --min-sqnr DB   # reach what you name",
    ]
    for line in commands:
        console.print(line, soft_wrap=True)  # commands are there to be copied


# --- Rows of a table on improvements of weights


def improvement_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """(improvement, node or site, kept, dB before and after, why) of each outcome."""
    return [
        (
            outcome.improvement,
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
    """Plain values of the table for programs, with the bits of every product."""
    return {
        "front": [_values(mix) for mix in mixed.front],
        "chosen": {**_values(mixed.chosen), "bits": dict(mixed.chosen.bits)},
    }


def _values(mix: Mix) -> dict[str, object]:
    return {
        "bits_average": mix.average,
        "weight_bytes": mix.size_bytes,
        "predicted_sqnr_db": None if mix.noise <= 0 else mix.sqnr_db,
        "products": {_name(bits): count for bits, count in mix.counts.items()},
    }
