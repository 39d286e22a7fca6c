from __future__ import annotations

import io
from typing import TYPE_CHECKING

from onnxq.report.console import open_console
from onnxq.report.wrapping import wrapped

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LONG = "note: " + "words " * 20 + "/a/path/that/is/never-broken/" + "x" * 60


def test_rows_fit_and_are_indented_behind_the_first() -> None:
    first, *rows = wrapped(f"  {LONG}", 40).split("\n")
    assert first.startswith("  note: words")
    assert all(row.startswith("    ") for row in rows)
    assert all(len(row) <= 40 for row in [first, *rows[:-1]])
    assert rows[-1].strip().startswith("/a/path/that/is/never-broken/xxx")


def test_lines_that_fit_stay_as_they_are() -> None:
    assert wrapped("a  b\n\n   c\n", 40) == "a  b\n\n   c\n"


def test_a_pipe_gets_a_sentence_in_one_line_and_a_terminal_in_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pipe, terminal = io.StringIO(), Terminal()
    for file in (pipe, terminal):
        open_console(file).print(LONG)
        open_console(file).print(LONG, soft_wrap=True)  # a command
    assert pipe.getvalue().splitlines() == [LONG, LONG]
    assert terminal.getvalue() == f"{wrapped(LONG, 80)}\n{LONG}\n"
