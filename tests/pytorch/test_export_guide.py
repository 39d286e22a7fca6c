"""The Python in docs/guides/export.md runs, top to bottom, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from onnxq.pytorch.arguments.axes import resolved
from onnxq.pytorch.arguments.bound_inputs import bind

if TYPE_CHECKING:
    from collections.abc import Mapping

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "guides" / "export.md"

pytestmark = pytest.mark.oracle


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "export.md", "exec"), names)
    assert [p.name for p in tmp_path.iterdir()] == ["words.onnx"]
    assert names["logits"].shape == (35, 20, 1000)
    bound = bind(names["model"], (names["words"], names["hidden"]))
    axes: list[Mapping[str, object]] = [names["by_input"], names["like_torch"]]
    assert resolved(axes[0], bound).of == resolved(axes[1], bound).of
