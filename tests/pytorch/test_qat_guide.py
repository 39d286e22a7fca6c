"""The Python in docs/guides/qat.md runs, top to bottom, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "guides" / "qat.md"


@pytest.mark.filterwarnings("ignore:finetune. no step was better")
def test_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "qat.md", "exec"), names)
    assert {p.name for p in tmp_path.iterdir()} == {"net.int8.onnx", "stubbed.int8.onnx"}
    assert "with norm" in capsys.readouterr().out  # what annotate prints
