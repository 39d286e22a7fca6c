from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from onnxq.core import processor
from onnxq.core.processor import processor_name

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_linux_names_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2.1 GHz\nmodel name\t: Some other\n")
    monkeypatch.setattr(processor, "CPUINFO", told)
    assert processor_name() == "Some CPU @ 2.1 GHz"


def test_elsewhere_python_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "none")
    assert processor_name() == platform.processor()
