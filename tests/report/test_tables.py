"""Tables fit a terminal; in a pipe names stay whole, and nothing but text comes out."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from onnxq.report.detail import Detail, showing
from onnxq.report.tables import MARK, distinct, print_table, shortened

if TYPE_CHECKING:
    import pytest

NAME = "/model/encoder/" + "layer/" * 15 + "attention/MatMul"
WORDS = "integers in, integers out: in float it would need three conversions"
ROWS = [(NAME, "Conv", WORDS, "12345.67"), ("b", "Add", WORDS, "1")]
HEADER = ("node", "op", "why, or how", "largest difference")


def printed(width: int, terminal: bool, marked: tuple[int, ...] = ()) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, color_system=None)
    print_table(console, "title", HEADER, ROWS, numbers=(3,), marked=marked)
    return file.getvalue()


def test_a_table_fits_80_columns_and_its_numbers_are_whole() -> None:
    lines = printed(80, terminal=True).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "12345.67" in line)
    assert row.startswith("/model/")
    assert "...ention/MatMul  Conv  " in row


def test_a_list_in_the_first_column_wraps_in_place_of_being_cut() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, color_system=None)
    print_table(console, "", ("machines", "why"), [("x86-avx2, x86-avx512, arm64-dot", WORDS)])
    assert all(name in file.getvalue() for name in ("x86-avx2", "x86-avx512", "arm64-dot"))


def test_in_a_pipe_names_are_whole_and_lines_end_with_text() -> None:
    text = printed(80, terminal=False)
    assert NAME in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "\x1b" not in text


def test_in_a_pipe_the_header_is_one_line() -> None:
    header = printed(80, terminal=False).splitlines()[1]
    assert header.split() == ["node", "op", "why,", "or", "how", "largest", "difference"]


def test_names_in_every_column_are_cut_in_the_middle_and_whole_in_a_pipe() -> None:
    def printed_names(terminal: bool) -> str:
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=60, color_system=None)
        print_table(console, "", ("tensor", "node"), [(NAME, NAME)])
        return file.getvalue()

    assert printed_names(terminal=True).splitlines()[1].count("...") == 2
    assert printed_names(terminal=False).count(NAME) == 2


def test_where_all_is_to_be_shown_a_terminal_gets_whole_names() -> None:
    with showing(Detail.WHOLE):
        assert NAME in printed(80, terminal=True)


def test_marked_rows_have_a_sign_and_the_others_room_for_it() -> None:
    lines = printed(80, terminal=True, marked=(1,)).splitlines()
    assert any(line.startswith(f"{MARK}b ") for line in lines)
    assert any(line.startswith("  /model/") for line in lines)


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for no_color, red in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=80, color_system="standard")
        print_table(console, "", ("name",), [("a",)], marked=(0,))
        assert ("31m" in file.getvalue()) is red


@given(st.text(max_size=60), st.integers(8, 60))
def test_a_shortened_name_keeps_both_ends_and_fits(name: str, width: int) -> None:
    short = shortened(name, width)
    if cell_len(name) <= width:
        assert short == name
    elif name.isascii():
        assert len(short) == width
        assert short[:2] == name[:2]
        assert short[-3:] == name[-3:]


def test_names_lose_what_their_column_shares_before_they_are_cut() -> None:
    names = [f"{NAME.removesuffix('MatMul')}{each}_output_0" for each in ("relu_16", "getitem_3")]
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    print_table(console, "", ("tensor", "node", "dB"), [(n, n, "1") for n in names], numbers=(2,))
    assert [line.split()[:2] for line in file.getvalue().splitlines()[1:3]] == [
        ["...relu_16..."] * 2,
        ["...getitem_3..."] * 2,
    ]


def test_names_that_fit_stay_whole() -> None:
    rows = [("/layer1/conv1_output_0", "1"), ("/layer1/conv2_output_0", "2")]
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    print_table(console, "", ("tensor", "dB"), rows, numbers=(1,))
    assert rows[0][0] in file.getvalue()


def test_names_are_told_apart_by_what_they_do_not_share() -> None:
    assert distinct(["/a/b1/c", "/a/b2/c", ""]) == ["/a/b1/c", "/a/b2/c", ""]  # "..." is as long
    assert distinct(["/stem/b1/Conv", "/stem/b2/Conv"]) == ["...b1...", "...b2..."]
    assert distinct(["/stem/b", "/stem/b/c"]) == ["...b", "...b/c"]
    assert distinct(["/stem/b"] * 2) == ["/stem/b"] * 2


@given(st.lists(st.text("ab/_", min_size=1, max_size=12), max_size=6))
def test_different_names_stay_different(names: list[str]) -> None:
    found = dict(zip(names, distinct(names), strict=True))
    assert len(set(found.values())) == len(found)
