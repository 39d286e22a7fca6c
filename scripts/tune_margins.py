"""Differences that the margins of a search stand for, from the results of benchmarks/tune.py.

    python scripts/tune_margins.py

Apart: decibels that a model has less on samples held apart than on those of the search. Interval:
half the width of the interval of its time over float's, whole runs in turns. Predicted: its time as
whole runs show it, less the one that the search went by.

What these printed stands beside the constants in onnxq/tuning/scoring/objective_function.py and
onnxq/tuning/search/proposals.py.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find scripts/

from benchmarks.harness.results import FOLDER, Results
from scripts._tables import head, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness.results import Stored

RESULTS = FOLDER / "tune.json"
QUANTILES = (0.5, 2 / 3, 0.9)


def margins(searches: Stored) -> Iterator[str]:
    """Lines of the table: quantiles of each difference over the rows of the searches."""
    times = searches.all("reached: time")
    reached, checked = (map(float, searches.all(f"{when}: dB")) for when in ("reached", "checked"))
    apart = [a - b for a, b in zip(reached, checked, strict=True) if math.isfinite(a)]
    predicted = zip(times, searches.all("predicted"), strict=True)
    yield head("of", "rows", *(f"{q:.2f}" for q in QUANTILES))
    yield _line("apart, dB", apart)
    yield _line("interval, of float's time", [(high - low) / 2 for _, low, high in times])
    yield _line("predicted", [abs(found[0] - wanted) for found, wanted in predicted])


def _line(name: str, values: Sequence[float]) -> str:
    return line(name, len(values), *(f"{x:.3f}" for x in np.quantile(values, QUANTILES)))


def main() -> int:
    print("\n".join(margins(Results.load(RESULTS).tables["searches"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
