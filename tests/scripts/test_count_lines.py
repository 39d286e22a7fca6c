from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.count_lines import code_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_blank_lines_comments_and_docstrings_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        '"""Two\nlines."""\n\n# why\nX = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n    return X\n'
    )
    assert code_lines(file) == 5
