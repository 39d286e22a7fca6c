from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import count_lines
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


def test_every_folder_is_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, folder in enumerate(FOLDERS, 1):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.py").write_text("x = 1\n" * number)
    (tmp_path / "onnxq" / "operators").symlink_to(tmp_path / "operators")
    monkeypatch.setattr(count_lines, "ROOT", tmp_path)
    monkeypatch.setattr(count_lines, "LINK", tmp_path / "onnxq" / "operators")
    main()
    lines = capsys.readouterr().out.splitlines()[-len(FOLDERS) :]
    wanted = [f"{n:6} {folder}/ (1 files)" for n, folder in enumerate(FOLDERS, 1)]
    assert lines == wanted
