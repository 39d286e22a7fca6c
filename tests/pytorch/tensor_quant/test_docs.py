"""The Python in docs/reference/tensor_quant.md runs, top to bottom, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "tensor_quant.md"


@pytest.mark.filterwarnings("ignore::onnxq.pytorch.importers.ImportedModelWarning")
def test_python_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 6
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, DOCS.name, "exec"), names)
    assert [p.name for p in tmp_path.iterdir()] == ["quantized.onnx"]
