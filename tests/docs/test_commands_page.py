"""The page on commands names each of them, for readers of the repository too."""

from __future__ import annotations

from scripts.write_commands import PAGE, table, with_table


def test_the_page_has_the_table_of_the_program() -> None:
    text = PAGE.read_text("utf-8")
    assert "| `onnxq quantize` | " in table()
    assert table() in text
    assert with_table(text) == text, "run scripts/write_commands.py"
