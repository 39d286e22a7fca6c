"""Columns that the layers of a drawing are broken into, each beside the one before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GUTTER = 56.0
"""Units between columns, where edges go up to the next one."""
MARGIN = 28.0
LEAST_LAYERS = 10
"""Layers of a column: shorter ones are hard to follow."""
SLACK = 0.2
"""Share of a column's layers by which it may be shorter, to end where few edges cross."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a drawing.

    Attributes:
        of: column of each layer.
        starts: first layer of each column.
        shifts: what is added to the x of a column.
        lefts: where each column begins.
        layer: units from a layer to the next one.
        width, height: of the drawing.
    """

    of: tuple[int, ...]
    starts: tuple[int, ...]
    shifts: tuple[float, ...]
    lefts: tuple[float, ...]
    layer: float
    width: float
    height: float

    def point(self, layer: int, x: float) -> tuple[float, float]:
        """Place of what lies at x in a layer."""
        column = self.of[layer]
        down = (layer - self.starts[column] + 0.5) * self.layer
        return x + self.shifts[column], down + MARGIN

    def gutter(self, column: int) -> float:
        """The x ahead of a column, where edges go up to it."""
        return self.lefts[column] - GUTTER / 2


def columns_of(
    extents: Sequence[tuple[float, float]], crossing: Sequence[int], layer: float, shape: float
) -> Columns:
    """Columns that give a drawing about the shape that is wanted.

    Args:
        extents: left and right end of each layer.
        crossing: tensors that go on from each layer to the next one.
        layer: units from a layer to the next one.
        shape: width over height.
    """
    starts = _starts(len(extents), _longest(extents, layer, shape), crossing)
    shifts: list[float] = []
    lefts: list[float] = []
    right = MARGIN
    for start, end in zip(starts, [*starts[1:], len(extents)], strict=True):
        low = min(extent[0] for extent in extents[start:end])
        high = max(extent[1] for extent in extents[start:end])
        shifts.append(right - low)
        lefts.append(right)
        right += high - low + GUTTER
    of = [0] * len(extents)
    for column, start in enumerate(starts):
        of[start:] = [column] * (len(extents) - start)
    deepest = max(b - a for a, b in zip(starts, [*starts[1:], len(extents)], strict=True))
    width, height = right - GUTTER + MARGIN, deepest * layer + 2 * MARGIN
    return Columns(tuple(of), tuple(starts), tuple(shifts), tuple(lefts), layer, width, height)


def _longest(extents: Sequence[tuple[float, float]], layer: float, shape: float) -> int:
    """Layers of a column, so that columns of a usual width give the shape."""
    widths = sorted(high - low for low, high in extents)
    usual = widths[int(0.9 * (len(widths) - 1))] + GUTTER
    columns = math.sqrt(shape * len(extents) * layer / usual)
    return max(math.ceil(len(extents) / max(columns, 1.0)), LEAST_LAYERS)


def _starts(layers: int, longest: int, crossing: Sequence[int]) -> list[int]:
    starts = [0]
    while layers - starts[-1] > longest:
        earliest = starts[-1] + max(int(longest * (1 - SLACK)), 1)
        ends = range(starts[-1] + longest - 1, earliest - 2, -1)  # the longest column first
        last = min(ends, key=lambda end: crossing[end])
        starts.append(last + 1)
    return starts
