"""Differences that the margins of a search stand for, from the rows of benchmarks/results/tune.md.

    python scripts/tune_margins.py

Apart: decibels that a model has less on samples held apart than on those of the search. Interval:
half the width of the interval of its time over float's, whole runs in turns. Predicted: its time as
whole runs show it, less the one that the search went by.

What these printed stands beside the constants in onnxq/tuning/scoring/objective_function.py and
onnxq/tuning/search/proposals.py.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from scripts._tables import cells, head, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLE = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "tune.md"
QUANTILES = (0.5, 2 / 3, 0.9)


def margins(page: str) -> Iterator[str]:
    """Lines of the table: quantiles of each difference over the rows of the page."""
    rows = cells(page, "model")
    times = [[float(x) for x in re.findall(r"\d+\.\d+", row["timed"])] for row in rows]
    pairs = [(float(row["reached: dB"]), float(row["checked: dB"])) for row in rows]
    apart = [reached - checked for reached, checked in pairs if math.isfinite(reached)]
    predicted = zip(times, rows, strict=True)
    yield head("of", "rows", *(f"{q:.2f}" for q in QUANTILES))
    yield _line("apart, dB", apart)
    yield _line("interval, of float's time", [(high - low) / 2 for _, low, high in times])
    yield _line("predicted", [abs(found[0] - float(row["predicted"])) for found, row in predicted])


def _line(name: str, values: Sequence[float]) -> str:
    return line(name, len(values), *(f"{x:.3f}" for x in np.quantile(values, QUANTILES)))


def main() -> int:
    print("\n".join(margins(TABLE.read_text("utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
