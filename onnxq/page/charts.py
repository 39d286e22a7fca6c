"""Charts as SVG geometry: histograms, ranges of channels, bars, points of a front.

Colours and sizes are the style sheet's; a chart is a path in a box of WIDE by HIGH units.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnxq.page.content import FrontPoint, Histogram, TensorQParams, WeightPart
from onnxq.page.wording import counting, decibels, number, tenth

WIDE, HIGH = 360.0, 110.0
MOST_CHANNELS = 180
"""Channels that are drawn one by one; of more, neighbours share a bar."""
MOST_STEPS = 40
"""LSB that are drawn one by one."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, in units of its chart, and what stands at it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        band: start and length of the range that integers reach, along the chart's wide side.
        ranges: path of the ranges that integers reach, where each bar has its own.
        steps: path of the lines of the levels; empty: they would lie too close.
    """

    bars: str
    ticks: tuple[Tick, ...]
    words: str
    band: tuple[float, float] | None = None
    ranges: str = ""
    steps: str = ""


def histogram_chart(histogram: Histogram, qparams: TensorQParams | None) -> Chart:
    """The float values of a tensor, with the range and the levels of its integers.

    Heights are square roots of counts, so that tails are seen.
    """
    low, span = histogram.low, histogram.high - histogram.low
    most = math.sqrt(max(histogram.counts, default=0)) or 1.0
    width = WIDE / len(histogram.counts)
    heights = [HIGH * math.sqrt(count) / most for count in histogram.counts]
    drawn = [f"M0 {tenth(HIGH)}"]
    for place, height in enumerate(heights):
        drawn.append(f"V{tenth(HIGH - height)}H{tenth(width * (place + 1))}")
    drawn.append(f"V{tenth(HIGH)}Z")

    def at(real: float) -> float:
        return min(max((real - low) / span * WIDE, 0.0), WIDE)

    ends = f"from {number(low)} to {number(histogram.high)}"
    ticks = _ticks(low, histogram.high)
    if qparams is None:
        return Chart("".join(drawn), ticks, f"float values {ends}; it is not quantized per tensor")
    start, end = at(qparams.low - qparams.scale / 2), at(qparams.high + qparams.scale / 2)
    words = (
        f"float values {ends}; {qparams.dtype} integers reach from {number(qparams.low)} to "
        f"{number(qparams.high)} in steps of {number(qparams.scale)}"
    )
    return Chart(
        "".join(drawn), ticks, words, (start, end - start), steps=_steps(qparams, at(0.0), span)
    )


def _steps(qparams: TensorQParams, zero: float, span: float) -> str:
    """A line at each step, where they are few."""
    apart = qparams.scale / span * WIDE
    if WIDE / apart > MOST_STEPS:
        return ""
    first = math.ceil(-zero / apart)
    count = int((WIDE - zero) / apart) - first + 1
    return "".join(f"M{tenth(zero + apart * (first + i))} 0V{tenth(HIGH)}" for i in range(count))


def _ticks(low: float, high: float) -> tuple[Tick, ...]:
    """Both ends, and 0 where it is well between them."""
    span = high - low
    found = [Tick(0.0, number(low))]
    at = -low / span * WIDE
    if 0.2 * WIDE < at < 0.8 * WIDE:
        found.append(Tick(round(at, 1), "0"))
    return (*found, Tick(WIDE, number(high)))


def channels_chart(weight: WeightPart) -> Chart:
    """The range of each channel's weights, with what its integers reach around it."""
    lows, highs, reaches = (
        _gathered(values, choose)
        for values, choose in ((weight.lows, min), (weight.highs, max), (weight.abs_max, max))
    )
    most = max((*(-n for n in lows), *highs, *reaches), default=0.0) or 1.0
    middle, width = HIGH / 2, WIDE / len(lows)

    def bar(place: int, low: float, high: float, share: float) -> str:
        left = width * (place + (1 - share) / 2)
        top, bottom = (middle * (1 - real / most) for real in (high, low))
        right, left_again = tenth(width * share), tenth(-width * share)
        return f"M{tenth(left)} {tenth(top)}h{right}V{tenth(bottom)}h{left_again}Z"

    bars = "".join(bar(i, lo, hi, 0.5) for i, (lo, hi) in enumerate(zip(lows, highs, strict=True)))
    ranges = "".join(bar(i, -r, r, 0.9) for i, r in enumerate(reaches))
    narrow, wide = min(weight.abs_max, default=0.0), max(weight.abs_max, default=0.0)
    words = (
        f"{counting(len(weight.lows), 'channel')}; their integers reach from ±{number(narrow)} to "
        f"±{number(wide)}"
    )
    ends = (Tick(0.0, "1"), Tick(WIDE, str(len(weight.lows))))
    return Chart(bars, ends if len(weight.lows) > 1 else (), words, ranges=ranges)


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
    """The bar of a difference, where `most` reaches the end."""
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
        dots: one for each model with a time; one that is equal to float lies at the upper edge.
        goal: height of the bound that was asked for; None: it bounds no metric, or is out of sight.
        equal: names of models that are equal to float, whose metric has no end.
    """

    dots: tuple[Dot, ...]
    goal: float | None
    goal_words: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    y_words: str
    equal: tuple[str, ...]


def front_chart(points: Sequence[FrontPoint], goal_db: float | None = None) -> FrontChart | None:
    """The chart of a search; None where fewer than two of its models have a time."""
    timed = [p for p in points if p.time_ratio is not None and p.metric > -math.inf]
    if len(timed) < 2:
        return None
    is_db = all(p.metric == p.db for p in timed)
    bound = goal_db if is_db else None
    finite = [p.metric for p in timed if math.isfinite(p.metric)]
    x = _axis([1.0, *(p.time_ratio or 0.0 for p in timed)])
    y = _axis([*finite, *([] if bound is None else [bound])] or [0.0])
    high = 2 * HIGH

    def up(value: float) -> float:
        return 0.0 if value == math.inf else round(high - y.share(value) * high, 1)

    return FrontChart(
        tuple(Dot(round(x.share(p.time_ratio or 0.0) * WIDE, 1), up(p.metric), p) for p in timed),
        None if bound is None else up(bound),
        "" if bound is None else f"goal: {decibels(bound)}",
        tuple(Tick(round(x.share(v) * WIDE, 1), number(v)) for v in x.ticks),
        tuple(Tick(up(v), number(v)) for v in y.ticks),
        "SQNR of the worst output, dB" if is_db else "metric",
        tuple(p.name for p in timed if p.metric == math.inf),
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


def _axis(values: Sequence[float]) -> _Axis:
    """An axis that begins and ends at round numbers, with room for all values between them."""
    low, high = min(values), max(values)
    span = (high - low) * 1.1 or abs(high) * 0.2 or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= span / 4)
    first, last = math.floor(low / step - 0.05), math.ceil(high / step + 0.05)
    ticks = tuple(round(step * n, 12) for n in range(first, last + 1))
    return _Axis(ticks[0], ticks[-1], ticks)
