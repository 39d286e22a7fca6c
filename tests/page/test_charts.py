from __future__ import annotations

import dataclasses
import math
import re

from onnxq.page.charts import (
    HIGH,
    WIDE,
    channels_chart,
    difference_bar,
    front_chart,
    histogram_chart,
)
from onnxq.page.content import FrontPoint, Histogram, TensorQParams, WeightPart
from tests.page.example_page import example_page


def test_bars_reach_from_the_axis_to_the_top() -> None:
    chart = histogram_chart(Histogram(0.0, 1.0, (0, 4, 1)), None)
    tops = [float(top) for top in re.findall(r"V([\d.]+)H", chart.bars)]
    assert tops == [HIGH, 0.0, HIGH / 2]  # square roots of the counts
    assert chart.band is None


def test_the_band_is_the_range_of_the_integers() -> None:
    qparams = TensorQParams("uint8", 0.1, 0, 0.0, 0.5)
    chart = histogram_chart(Histogram(-1.0, 1.0, (1, 2)), qparams)
    assert chart.band is not None
    start, length = chart.band
    assert (start, length) == (0.475 * WIDE, 0.3 * WIDE)
    assert chart.steps.count("M") == 21  # 20 steps fit into the chart


def test_steps_that_lie_too_close_are_not_drawn() -> None:
    assert (
        histogram_chart(Histogram(-1.0, 1.0, (1,)), TensorQParams("uint8", 0.01, 0, 0, 1)).steps
        == ""
    )


def test_each_channel_has_a_bar_up_to_where_they_are_gathered() -> None:
    def part(channels: int) -> WeightPart:
        ones = (1.0,) * channels
        return WeightPart("w", None, "int8", "", tuple(-x for x in ones), ones, ones)

    assert channels_chart(part(3)).bars.count("M") == 3
    assert channels_chart(part(1000)).bars.count("M") < 180
    assert "1000 channels" in channels_chart(part(1000)).words


def test_a_loss_goes_right_and_a_gain_left() -> None:
    loss, gain = difference_bar(5.0, 10.0), difference_bar(-10.0, 10.0)
    assert (loss.start, loss.length, loss.is_loss) == (50.0, 25.0, True)
    assert (gain.start, gain.length, gain.is_loss) == (0.0, 50.0, False)


def test_a_front_needs_two_models_with_a_time() -> None:
    points = example_page().front
    chart = front_chart(points)
    assert chart is not None
    assert len(chart.dots) == 2
    assert (chart.y_words, chart.goal) == ("metric", None)
    assert front_chart(points[:1]) is None
    assert front_chart([points[0], dataclasses.replace(points[1], time_ratio=None)]) is None


def test_a_front_has_round_ticks_its_goal_and_a_place_for_equal_models() -> None:
    def point(name: str, db: float, time: float) -> FrontPoint:
        return FrontPoint(name, db, db, time, "1 B", "", True, False)

    points = [point("a", 61.37, 0.84), point("b", math.inf, 1.02), point("c", 15.6, 0.91)]
    chart = front_chart(points, 40.0)
    assert chart is not None
    assert [tick.text for tick in chart.x_ticks] == ["0.8", "0.85", "0.9", "0.95", "1", "1.05"]
    assert [tick.text for tick in chart.y_ticks] == ["0", "20", "40", "60", "80"]
    assert (chart.goal, chart.goal_words) == (HIGH, "goal: 40.0 dB")
    assert chart.equal == ("b",)
    assert chart.dots[1].y == 0.0
