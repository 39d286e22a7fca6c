"""The Python in docs/tutorials/language-models.md runs, top to bottom, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "tutorials" / "language-models.md"


@pytest.mark.oracle
@pytest.mark.nightly
def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 6
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "language-models.md", "exec"), names)
    bits_in_windows, held_out = names["bits_in_windows"], names["held_out"]
    exact, small = (
        bits_in_windows(name, held_out).per_token for name in ("decoder.onnx", "decoder.4bit.onnx")
    )
    assert exact < 2.3
    assert small < exact + 0.05
    built, int8 = (bits_in_windows(names[n], held_out).per_token for n in ("built", "cached"))
    assert abs(int8 - built) < 0.005
    cached = names["bits_with_cache"]("decoder.onnx", held_out[:1], step=64).per_token
    assert abs(cached - bits_in_windows("decoder.onnx", held_out[:1]).per_token) < 1e-4
    assert (tmp_path / "decoder.4bit" / "genai_config.json").is_file()
