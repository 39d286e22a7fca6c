"""Charts as SVG geometry: histograms, ranges of channels, bars, points of a front.

Colours and sizes are the style sheet's; a chart is a path in a box of WIDE by HIGH units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.page.wording import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.page.content import FrontPoint, Grid, Histogram, WeightPart

WIDE, HIGH = 360.0, 110.0
MOST_CHANNELS = 180
"""Channels that are drawn one by one; of more, neighbours share a bar."""
MOST_STEPS = 40
"""Steps of a grid that are drawn one by one."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, in units of its chart, and what stands at it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        bars: path of what is counted or measured.
        band: start and length of the range that codes reach, along the chart's wide side.
        reach: path of the ranges that codes reach, where each bar has its own.
        steps: path of the lines of a grid; empty: they would lie too close.
        ticks: of the axis.
        words: what is seen, for those who do not see it.
    """

    bars: str
    ticks: tuple[Tick, ...]
    words: str
    band: tuple[float, float] | None = None
    reach: str = ""
    steps: str = ""


def histogram_chart(histogram: Histogram, grid: Grid | None) -> Chart:
    """The float values of a tensor, with the range and the grid of its codes.

    Heights are square roots of counts, so that tails are seen.
    """
    low, span = histogram.low, histogram.high - histogram.low
    most = math.sqrt(max(histogram.counts, default=0)) or 1.0
    width = WIDE / len(histogram.counts)
    heights = [HIGH * math.sqrt(count) / most for count in histogram.counts]
    drawn = [f"M0 {_n(HIGH)}"]
    for place, height in enumerate(heights):
        drawn.append(f"V{_n(HIGH - height)}H{_n(width * (place + 1))}")
    drawn.append(f"V{_n(HIGH)}Z")

    def at(real: float) -> float:
        return min(max((real - low) / span * WIDE, 0.0), WIDE)

    ends = f"from {number(low)} to {number(histogram.high)}"
    ticks = _ticks(low, histogram.high)
    if grid is None:
        return Chart("".join(drawn), ticks, f"float values {ends}; it has no grid")
    start, end = at(grid.low - grid.scale / 2), at(grid.high + grid.scale / 2)
    words = (
        f"float values {ends}; {grid.dtype} codes reach from {number(grid.low)} to "
        f"{number(grid.high)} in steps of {number(grid.scale)}"
    )
    return Chart(
        "".join(drawn), ticks, words, (start, end - start), steps=_steps(grid, at(0.0), span)
    )


def _steps(grid: Grid, zero: float, span: float) -> str:
    """A line at each step, where they are few."""
    apart = grid.scale / span * WIDE
    if WIDE / apart > MOST_STEPS:
        return ""
    first = math.ceil(-zero / apart)
    count = int((WIDE - zero) / apart) - first + 1
    return "".join(f"M{_n(zero + apart * (first + i))} 0V{_n(HIGH)}" for i in range(count))


def _ticks(low: float, high: float) -> tuple[Tick, ...]:
    """Both ends, and 0 where it is well between them."""
    span = high - low
    found = [Tick(0.0, number(low))]
    at = -low / span * WIDE
    if 0.2 * WIDE < at < 0.8 * WIDE:
        found.append(Tick(round(at, 1), "0"))
    return (*found, Tick(WIDE, number(high)))


def channels_chart(weight: WeightPart) -> Chart:
    """The range of each channel's weights, with what its codes reach around it."""
    lows, highs, reaches = (
        _gathered(values, choose)
        for values, choose in ((weight.lows, min), (weight.highs, max), (weight.reaches, max))
    )
    most = max((*(-n for n in lows), *highs, *reaches), default=0.0) or 1.0
    middle, width = HIGH / 2, WIDE / len(lows)

    def bar(place: int, low: float, high: float, share: float) -> str:
        left = width * (place + (1 - share) / 2)
        top, bottom = (middle * (1 - real / most) for real in (high, low))
        return f"M{_n(left)} {_n(top)}h{_n(width * share)}V{_n(bottom)}h{_n(-width * share)}Z"

    bars = "".join(bar(i, lo, hi, 0.5) for i, (lo, hi) in enumerate(zip(lows, highs, strict=True)))
    reach = "".join(bar(i, -r, r, 0.9) for i, r in enumerate(reaches))
    narrow, wide = min(weight.reaches, default=0.0), max(weight.reaches, default=0.0)
    words = (
        f"{len(weight.lows)} channel(s); their codes reach from ±{number(narrow)} to "
        f"±{number(wide)}"
    )
    ends = (Tick(0.0, "1"), Tick(WIDE, str(len(weight.lows))))
    return Chart(bars, ends if len(weight.lows) > 1 else (), words, reach=reach)


def _gathered(values: Sequence[float], choose: object) -> list[float]:
    """The values, or the outermost of neighbours where there are too many."""
    assert callable(choose)
    each = math.ceil(len(values) / MOST_CHANNELS) or 1
    return [choose(values[start : start + each]) for start in range(0, len(values), each)]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from the middle of a column: to the right it costs, to the left it gains."""

    start: float
    length: float
    is_loss: bool


def difference_bar(value: float, most: float, wide: float = 100.0) -> Bar:
    """The bar of a difference, where `most` reaches the end.

    Args:
        value: above 0: a loss.
        most: largest of all, above 0.
        wide: the whole column.
    """
    length = min(abs(value) / most, 1.0) * wide / 2
    return Bar(round(wide / 2 - (length if value < 0 else 0.0), 1), round(length, 1), value > 0)


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a front in a chart of WIDE by 2 HIGH units."""

    x: float
    y: float
    point: FrontPoint


@dataclass(frozen=True, slots=True)
class FrontChart:
    """The models of a search: time from left to right, the metric upwards.

    Attributes:
        dots: one for each model with a time.
        line: path along the front.
        x_ticks, y_ticks: of the axes.
    """

    dots: tuple[Dot, ...]
    line: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def front_chart(points: Sequence[FrontPoint]) -> FrontChart | None:
    """The chart of a search; None where fewer than two of its models have a time."""
    timed = [p for p in points if p.time_ratio is not None and math.isfinite(p.metric)]
    if len(timed) < 2:
        return None
    times, metrics = [p.time_ratio or 0.0 for p in timed], [p.metric for p in timed]
    x, y = _axis(times), _axis(metrics)
    high = 2 * HIGH
    dots = tuple(
        Dot(_round(x.share(t) * WIDE), _round(high - y.share(m) * high), p)
        for t, m, p in zip(times, metrics, timed, strict=True)
    )
    ahead = sorted((d for d in dots if d.point.is_front), key=lambda d: d.x)
    line = "".join(f"{'L' if i else 'M'}{_n(d.x)} {_n(d.y)}" for i, d in enumerate(ahead))
    x_ticks = tuple(Tick(_round(x.share(v) * WIDE), f"{v:.2f}") for v in (x.low, x.middle, x.high))
    y_ticks = tuple(
        Tick(_round(high - y.share(v) * high), number(v)) for v in (y.low, y.middle, y.high)
    )
    return FrontChart(dots, line, x_ticks, y_ticks)


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


def _axis(values: Sequence[float]) -> _Axis:
    """An axis with room at both ends."""
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return _Axis(low - room, high + room)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _round(value: float) -> float:
    return round(value, 1)
