from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.count_lines import FOLDERS, code_lines, main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_blank_lines_comments_and_docstrings_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        '"""Two\nlines."""\n\n# why\nX = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n    return X\n'
    )
    assert code_lines(file) == 5


def test_every_folder_is_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()[-len(FOLDERS) :]
    assert [line.split()[1] for line in lines] == [f"{folder}/" for folder in FOLDERS]
    assert all(int(line.split()[0]) > 0 for line in lines)
