from __future__ import annotations

import math

import pytest

from onnxq.page.content import NodePart
from onnxq.page.drawing import (
    MOST_WIDE,
    NAME,
    SIDES,
    difference,
    drawing_of,
    error_level,
    legend_errors,
    shortened,
    shown_name,
    time_class,
)
from tests.page.example_page import example_page


def test_every_node_has_a_box_and_every_edge_a_line() -> None:
    page = example_page(60)
    drawing = drawing_of(page)
    assert len(drawing.boxes) == len(page.nodes)
    assert len(drawing.lines) == len(page.edges)
    assert all(0 <= box.x < drawing.width and 0 <= box.y < drawing.height for box in drawing.boxes)
    assert "H" in "".join(drawing.lines)  # to the next column


@pytest.mark.parametrize(
    ("db", "level"), [(3.0, "e0"), (15.0, "e1"), (99.0, "e6"), (math.nan, "e0"), (None, "e-none")]
)
def test_errors_have_classes(db: float | None, level: str) -> None:
    assert error_level(db) == level


def test_the_legend_has_every_class_of_errors() -> None:
    assert [level for level, _ in legend_errors()] == [f"e{n}" for n in range(7)]


def test_times_have_classes_on_both_sides() -> None:
    def node(after: float | None) -> NodePart:
        return NodePart("n", "Conv", "int8", "", 10.0, after)

    classes = [time_class(node(after), 10.0) for after in (0.0, 10.0, 20.0, None)]
    assert classes == ["t-3", "t0", "t3", "t-none"]
    assert difference(node(None)) is None


def test_long_names_keep_both_ends() -> None:
    assert shortened("a" * 30 + "end", 11) == "aaaaa…aaend"
    assert shortened("short") == "short"


def _named(name: str) -> str:
    return shown_name(NodePart(name, "Conv", "int8", ""))


def test_a_box_has_the_nodes_name_without_the_operator_that_its_title_says() -> None:
    assert _named("/layer1/layer1.0/conv1/Conv") == "layer1/layer1.0/conv1"
    assert _named("/Conv") == "/Conv"
    assert _named("Conv_0") == "Conv_0"


def test_names_fit_their_boxes_and_keep_both_ends() -> None:
    long = _named("/encoder/layers.11/attention/self/query_projection/Conv")
    assert long.startswith("encoder/")
    assert long.endswith("projection")
    boxes = drawing_of(example_page(3)).boxes
    assert boxes[0].name == ""  # an input is its title
    assert all(SIDES + NAME * len(box.name) <= MOST_WIDE for box in boxes)
    assert all(SIDES + NAME * len(box.name) <= box.width for box in boxes)
