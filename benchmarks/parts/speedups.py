"""Writes the tables of measured speedups that planning reads: onnxq/targets/*_speedups.csv."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.targets.speedups import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Key = tuple[str, str, int, int, int]

FOLDER = Path(__file__).resolve().parents[2] / "onnxq" / "targets"


def speedups_text(rows: Sequence[int], speedups: Mapping[Key, Sequence[float]]) -> str:
    """The text of a table.

    Args:
        rows: of the activation, one per ratio.
        speedups: (operators, form, bits, k, n) -> time in float / time so quantized, per entry of
            `rows`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *rows])
    for key, ratios in speedups.items():
        writer.writerow([*key, *(f"{ratio:.2f}" for ratio in ratios)])
    return text.getvalue()


def write_speedups(name: str, rows: Sequence[int], speedups: Mapping[Key, Sequence[float]]) -> None:
    """Writes a table in place of the one that planning reads, and says so."""
    path = FOLDER / name
    path.write_text(speedups_text(rows, speedups))
    print(f"\n{path} written")
