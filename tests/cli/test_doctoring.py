from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onnxq import targets
from onnxq.core.version import VERSION

if TYPE_CHECKING:
    import pytest

    from tests.cli.conftest import Run


def test_doctor_names_machine_versions_and_target(run: Run) -> None:
    result = run("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    assert VERSION in result.stdout
    assert targets.find(targets.AUTO).name in result.stdout
    assert "onnxruntime" in result.stdout


def test_doctor_as_json(run: Run) -> None:
    value = json.loads(run("doctor", "--json").stdout)
    assert {p["name"] for p in value["packages"]} >= {"numpy", "onnx", "torch"}


def test_a_missing_package_is_exit_code_7_with_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _name: ["frob>=2"])
    result = run("doctor")
    assert result.exit_code == 7
    assert "Run: pip install 'frob>=2'" in result.stderr
