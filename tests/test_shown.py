from __future__ import annotations

import pytest

from onnxq.errors import ModelError
from onnxq.shown import shown, shown_json, shown_lines

CASES = {
    "plain": "plain",
    "größe 3 → 4": "größe 3 → 4",
    "\x1b]0;t\x07": r"\x1b]0;t\x07",
    "\x9b2J": r"\x9b2J",
    "a\x7f": r"a\x7f",
    "a\rb\tc\nd": r"a\rb\tc\nd",
    "\u202eevil": r"\u202eevil",
    "\u2066x\u2069": r"\u2066x\u2069",
    "\u2028x": r"\u2028x",
    "\udcff": r"\udcff",
    "\U000e0041": r"\U000e0041",
    "": "",
}


@pytest.mark.parametrize("text", CASES)
def test_one_line_that_prints(text: str) -> None:
    assert shown(text) == CASES[text]
    assert shown(shown(text)) == CASES[text]
    shown(text).encode()


def test_no_line_of_a_message_is_forged() -> None:
    assert (
        shown_lines("it: a\nError: forged\n  a line\n\n") == "it: a\n  Error: forged\n  a line\n\n"
    )
    assert str(ModelError("node 'a\x1b[2J\nError: b'")) == "node 'a\\x1b[2J\n  Error: b'"


def test_json_of_ascii_prints() -> None:
    assert shown_json('{"\x7f"}') == '{"\\u007f"}'
