from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from onnxq.tuning.scoring.metric_file import MetricFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A metric that imports a module beside it, at once and when it is called."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_the_metric.py").write_text("import beside_that\nVALUE = 0.5\n")
    (tmp_path / "beside_that.py").write_text("")
    path = tmp_path / "metric.py"
    path.write_text(
        "from beside_the_metric import VALUE\n"
        "def value(run, samples):\n"
        "    import beside_the_metric\n"
        "    return VALUE + beside_the_metric.VALUE\n"
    )
    return path


def test_modules_beside_the_file_can_be_imported(file: Path) -> None:
    assert MetricFile.of(f"{file}:value", ())(None, None) == 1.0


@pytest.mark.parametrize("changed", ["metric.py", "beside_the_metric.py", "beside_that.py"])
def test_a_change_of_what_is_imported_is_another_version(file: Path, changed: str) -> None:
    metric = MetricFile.of(f"{file}:value", ())
    before = metric.fingerprint
    with (file.parent / changed).open("a") as opened:
        opened.write("# changed\n")
    metric = MetricFile.of(f"{file}:value", ())
    assert metric.fingerprint != before


def test_installed_modules_come_before_those_beside(file: Path) -> None:
    (file.parent / "json.py").write_text("raise AssertionError\n")
    file.write_text("import json\nvalue = json.dumps\n")
    assert MetricFile.of(f"{file}:value", ())([1]) == "[1]"
