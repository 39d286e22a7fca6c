from __future__ import annotations

import math

import pytest

from onnxq.page.wording import (
    change,
    counting,
    decibels,
    microseconds,
    number,
    part_of_error,
    share,
    share_away,
    time_taken,
)


@pytest.mark.parametrize(
    ("db", "words"),
    [(31.25, "31.2 dB"), (math.inf, "equal"), (-math.inf, "lost"), (math.nan, "not a number")],
)
def test_decibels_that_are_no_number_are_words(db: float, words: str) -> None:
    assert decibels(db) == words


def test_a_part_of_an_error_that_is_not_there_is_none_of_it() -> None:
    assert part_of_error(math.inf) == "none"
    assert part_of_error(31.25) == "31.2 dB"


def test_what_is_not_known_is_a_dash() -> None:
    assert decibels(None) == microseconds(None) == share(None) == "–"


def test_figures_have_their_units() -> None:
    assert microseconds(12.34) == "12.3 µs"
    assert microseconds(1234.0) == "1.23 ms"
    assert change(3.0) == "+3.0 µs"
    assert change(-3.0) == "−3.0 µs"
    assert share(1e-6) == "<0.01%"
    assert share(0.0) == "0%"
    assert share_away(20.0) == "10.00%"
    assert number(-0.012345) == "−0.01235"


def test_nouns_are_counted_and_parts_without_time_have_none() -> None:
    assert (counting(1, "layer"), counting(2, "layer")) == ("1 layer", "2 layers")
    assert (time_taken(0.0), time_taken(None), time_taken(3.0)) == ("–", "–", "3.0 µs")
