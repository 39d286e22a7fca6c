"""The Python in docs/reference/torch_quantization.md runs, top to bottom, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

GUIDE = (
    Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "torch_quantization.md"
)


def test_the_guide_runs() -> None:
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "guide"}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, "torch_quantization.md", "exec"), names)
    y = names["model"](names["data"])
    for made in ("quantized", "dynamic"):
        # 8 bits in two layers
        assert (names[made](names["data"]) - y).abs().max() < 0.05 * y.abs().max()
