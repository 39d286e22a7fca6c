"""The Python in the README runs, top to bottom, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _blocks(page: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


@pytest.mark.oracle
def test_python_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = _blocks("README.md")
    assert len(blocks) >= 4
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    written = {p.name for p in tmp_path.iterdir()} - {"models"}
    resnet, digits = ({f"{name}.onnx", f"{name}.int8.onnx"} for name in ("resnet20", "digits"))
    assert written == resnet | digits | {"trained.onnx", "y.npz"}


@pytest.mark.nightly
@pytest.mark.oracle
def test_the_python_of_the_page_on_commands_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = _blocks("docs/reference/command_line.md")
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "command_line.md", "exec"), {})
    text = capsys.readouterr().out
    assert "2 of 2" in text
    assert "Benchmark(" in text
    assert "QuantizedFile(" in text


def test_both_commands_are_scripts_that_can_be_run() -> None:
    for name in ("demo", "test", "check", "setup"):
        assert (ROOT / "scripts" / name).stat().st_mode & 0o111
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
