"""A part of an output that is judged by itself."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_RUNS = 3  # said one by one


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Slices of an output along an axis, and how near to float they are.

    Attributes:
        axis: of the output, from 0.
        slices: their indices along the axis, ascending.
        sqnr_db: over these slices, in dB.
    """

    axis: int
    slices: tuple[int, ...]
    sqnr_db: float

    @property
    def place(self) -> str:
        """Where it is, in words."""
        runs = list(_runs(self.slices))
        said = ", ".join(f"{a} to {b}" if b > a else str(a) for a, b in runs[:MOST_RUNS])
        more = f" and {len(runs) - MOST_RUNS} more ranges" if len(runs) > MOST_RUNS else ""
        noun = "slice" if len(self.slices) == 1 else "slices"
        return f"{noun} {said}{more} of axis {self.axis}"

    def __str__(self) -> str:
        return f"{self.place}: {self.sqnr_db:.1f} dB"


def _runs(indices: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of successive indices."""
    starts = [indices[0], *(b for a, b in pairwise(indices) if b != a + 1)]
    stops = [*(a for a, b in pairwise(indices) if b != a + 1), indices[-1]]
    return zip(starts, stops, strict=True)
