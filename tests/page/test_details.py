from __future__ import annotations

from onnxq.page.drawing import drawing_of
from onnxq.page.render import details_of, island
from tests.page.example_page import HOSTILE, example_page


def test_details_name_neighbours_tensors_and_weights_by_place() -> None:
    page = example_page()
    details = details_of(page, drawing_of(page))
    nodes = details["nodes"]
    assert isinstance(nodes, list)
    assert nodes[1]["name"] == HOSTILE
    assert (nodes[1]["ins"], nodes[1]["outs"]) == ([0], [2])
    assert (nodes[1]["tensors"], nodes[1]["weights"]) == ([1], [0])
    assert nodes[1]["revert"] == "--set node:x=float"
    assert island(details)  # finite throughout


def test_tensors_have_their_histogram_and_both_errors() -> None:
    page = example_page()
    tensors = details_of(page, drawing_of(page))["tensors"]
    assert isinstance(tensors, list)
    assert tensors[0]["chart"]["bars"].startswith("M0")
    assert ["local, on these", "50.0 dB"] in map(list, tensors[0]["facts"])
    assert ["accumulated, on these", "none"] in map(list, tensors[0]["facts"])
