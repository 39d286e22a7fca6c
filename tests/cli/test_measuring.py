from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.clock import here
from onnxq.clock.elements import element_links
from onnxq.costs import Costs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Run


def test_a_table_of_this_machine_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.clock.measure.RUNS", 2)
    monkeypatch.setattr(here, "links", lambda: list(element_links())[:3])
    output = tmp_path / "here.csv"
    result = run("costs", "-o", output, "--passes", 1, "--target", "x86-vnni")
    assert (result.exit_code, result.stdout.split()[1]) == (0, "4")
    assert Costs.load(output).target == "x86-vnni"


def test_a_target_that_is_not_known_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("costs", "-o", tmp_path / "here.csv", "--target", "x86-vni")
    assert result.exit_code == 5
    assert "x86-vnni" in result.stderr
