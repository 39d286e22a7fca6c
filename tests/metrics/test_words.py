from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import QConfigError
from onnxq.metrics import LayoutError, Words
from onnxq.metrics.words import edits

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

SPACE = 4
TEXT = [1, 1, 0, 2, 0, 2, SPACE, 0, 3, 3, 0, SPACE, 5, 0]
"""Frames of CTC with blank 0: 1 2 2, 3, 5."""


def logits(frames: list[int]) -> Array:
    return (3 * np.eye(6, dtype=np.float32)[frames])[None]


def test_words_of_ctc_are_counted_between_spaces() -> None:
    spoilt = [*TEXT[:8], 2, 2, *TEXT[10:]]
    found = Words(space=SPACE)
    found.update({"logits": logits(TEXT)}, {"logits": logits(spoilt)})
    assert found.count == 3
    assert found.value == pytest.approx(-1 / 3)
    assert "blank 0" in found.layout.words


def test_without_a_space_each_token_counts() -> None:
    found = Words()
    found.update({"y": logits(TEXT)}, {"y": logits([*TEXT[:-2], 0, 0])})
    assert found.count == 7
    assert found.value == pytest.approx(-1 / 7)


def test_frames_may_stand_first() -> None:
    found = Words()
    x = np.moveaxis(logits(TEXT), 0, 1)
    found.update({"y": x}, {"y": x})
    assert (found.count, found.value) == (7, 0.0)
    assert found.layout.said["time"] == 0


def test_several_lines_and_frames_are_an_error_that_says_how_to_read_them() -> None:
    x = np.concatenate([logits(TEXT)] * 3)
    with pytest.raises(LayoutError, match=r"axis 0 or 1\. Say time=1 of"):
        _ = Words().layout_of({"y": x})
    found = Words(time=0)
    found.update({"y": np.moveaxis(x, 0, 1)}, {"y": np.moveaxis(x, 0, 1)})
    assert found.count == 3 * 7


def test_the_last_class_may_be_the_blank() -> None:
    frames = [5 if token == 0 else 0 if token == 5 else token for token in TEXT]
    assert Words().layout_of({"y": logits(frames)}).said["blank"] == 5


def test_no_blank_is_an_error_that_names_what_to_say() -> None:
    with pytest.raises(LayoutError, match="words:blank=0"):
        _ = Words().layout_of({"y": logits([2, 2, 3, 2])})
    found = Words(blank="none")
    found.update({"y": logits([2, 2, 3, 2])}, {"y": logits([2, 2, 3, 3])})
    assert found.value == pytest.approx(-1 / 4)
    with pytest.raises(QConfigError, match="blank is 'nothing'"):
        Words(blank="nothing")


def test_tokens_that_fill_up_a_row_are_no_words() -> None:
    x = np.array([[7, 8, 9, 2, 2, 2], [7, 7, 7, 7, 8, 2]])
    y = np.array([[7, 8, 2, 2, 2, 2], [7, 7, 7, 7, 8, 2]])
    found = Words()
    found.update({"ids": x}, {"ids": y})
    assert found.count == 4 + 6
    assert found.value == pytest.approx(-1 / 10)


@pytest.mark.parametrize(
    ("x", "y", "distance"),
    [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("flaw", "lawn", 2)],
)
def test_edits_are_the_fewest(x: str, y: str, distance: int) -> None:
    assert edits([(ord(c),) for c in x], [(ord(c),) for c in y]) == distance
