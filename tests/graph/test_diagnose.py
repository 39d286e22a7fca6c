from __future__ import annotations

import pytest
from onnx import helper

from onnxq.graph.io import why_unreadable

MODEL = helper.make_model(
    helper.make_graph([helper.make_node("Relu", ["x"], ["y"])] * 40, "g", [], [])
)
DATA = MODEL.SerializeToString()


@pytest.mark.parametrize("size", range(20, len(DATA) - 10, 17))
def test_a_cut_file_is_called_truncated(size: int) -> None:
    assert "truncated" in why_unreadable(DATA[:size])


def test_text_in_any_language_is_called_text() -> None:
    assert "text file" in why_unreadable("modèle = 3\n".encode() * 100)


def test_bytes_of_another_format_are_not_called_truncated() -> None:
    for data in (
        b"PK\x03\x04" + bytes(50),
        b"\x80\x04\x95" + bytes(range(50)),
        b"\x89PNG\r\n\x1a\n" + bytes(9),
    ):
        assert "not an ONNX model" in why_unreadable(data)


def test_samples_in_place_of_a_model_are_told_so() -> None:
    for data in (b"PK\x03\x04" + bytes(50), b"\x93NUMPY" + bytes(50)):
        assert "The model comes first" in why_unreadable(data)


def test_a_file_of_the_right_length_is_called_damaged_inside() -> None:
    assert "damaged inside" in why_unreadable(DATA)  # asked of what protobuf does not read
