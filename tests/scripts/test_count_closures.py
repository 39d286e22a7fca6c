from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.count_closures import closures

if TYPE_CHECKING:
    from pathlib import Path


def test_a_closure_has_what_imports_lead_to(tmp_path: Path) -> None:
    (tmp_path / "conv.py").write_text("from onnxq.operators._windows import sliding\n")
    (tmp_path / "_windows.py").write_text("from onnxq.operators import _pads\nimport numpy\n")
    (tmp_path / "_pads.py").write_text("from onnxq.operators._windows import Windows\n")
    assert closures(tmp_path) == {"conv": {"conv", "_windows", "_pads"}}


@pytest.mark.parametrize(("name", "most"), [("conv", 9), ("softmax", 2), ("lstm", 7), ("sqrt", 3)])
def test_an_operator_is_read_in_few_files(name: str, most: int) -> None:
    assert len(closures()[name]) <= most
