"""Output that stands in a page against output that came."""

from __future__ import annotations

import pytest

from scripts._pages.comparison import agrees, elided


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("a  b\n", "a b  \n\n"),
        ("SQNR 33.6 dB", "SQNR 34.1 dB"),
        ("1.64 times as fast", "2.9 times as fast"),
        ("took 0.31 ms", "took 1.7 ms"),
        ("head\n...\ntail", "head\n1\n2\ntail"),
        ("node 'a' ... 3", "node 'a' and 7 more, 3"),
        ("onnxruntime 1.31.1", "onnxruntime 1.31.1"),
    ],
)
def test_what_means_the_same_agrees(shown: str, came: str) -> None:
    assert agrees(shown, came, is_timed=False)


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("33 of 35 nodes", "34 of 35 nodes"),
        ("SQNR 33.6 dB", "SQNR 24.1 dB"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("exit code 3", ""),
        ("nothing (.*)", "nothing at all"),
    ],
)
def test_another_integer_word_line_or_far_decimal_does_not(shown: str, came: str) -> None:
    assert not agrees(shown, came, is_timed=False)


def test_decimals_of_a_clock_may_be_anything_and_words_beside_them_not() -> None:
    assert agrees("Conv 12.3", "Conv 98.7", is_timed=True)
    assert not agrees("Conv 12.3", "Gemm 12.3", is_timed=True)


@pytest.mark.parametrize(
    ("shown", "came", "wanted"),
    [
        ("a 1\n...\nb 2.5 dB", "a 3\nx\ny\nb  7.5 dB", "a 3\n...\nb  7.5 dB"),
        (
            "a 2.0 times as fast\n...\nb 1",
            "a 1.4 times as fast\nx\nb 2",
            "a 2.0 times as fast\n...\nb 2",
        ),
        ("...\nb 1,200", "x\nb 7", "...\nb 7"),
        ("a 1 ...\nb 2", "a 1 and more\nb 3", "a 1 ...\nb 3"),
        ("a 1\n...\nb 2", "a 3\nx\nc 2", "a 3\nx\nc 2"),
        ("a 1\nb 2", "a 1\nx\nb 3", "a 1\nx\nb 3"),
    ],
)
def test_what_a_page_leaves_out_stays_out(shown: str, came: str, wanted: str) -> None:
    assert elided(shown, came) == wanted
