from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.operators._attributes import integer, integers, real, text

if TYPE_CHECKING:
    from onnxq.operator import AttributeValue


def test_absent_attributes_have_the_schemas_default() -> None:
    assert integer({}, "axis", -1) == -1
    assert real({}, "alpha", 0.5) == 0.5
    assert text({}, "mode", "constant") == "constant"
    assert integers({}, "pads", [0, 0]) == [0, 0]


def test_attributes_that_are_there_win() -> None:
    given: dict[str, AttributeValue] = {"axis": 2, "alpha": 1.5, "mode": "edge", "pads": (1, 2)}
    assert integer(given, "axis", -1) == 2
    assert real(given, "alpha", 0.5) == 1.5
    assert text(given, "mode", "constant") == "edge"
    assert integers(given, "pads", [0, 0]) == [1, 2]


def test_bytes_are_text() -> None:
    assert text({"mode": b"edge"}, "mode", "constant") == "edge"


def test_an_empty_list_counts_as_absent() -> None:
    assert integers({"axes": []}, "axes", [3]) == [3]
