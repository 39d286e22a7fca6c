from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from onnxq.report.progress import progress_bar

if TYPE_CHECKING:
    import pytest


def test_nothing_is_written_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("work") as step:
        step(1, 2)
        step(2, None)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("work") as step:
        step(1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "work" in err
