"""Export takes a factory and its inputs from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.mark.oracle
def test_export_writes_a_model_of_a_factory_in_the_current_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_factory_file.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Linear(4, 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    output = tmp_path / "m.onnx"
    spec = ("--input", "input=float32[2,4]")
    result = run("export", "my_factory_file:make", *spec, "-o", output, "--output-name", "z")
    assert result.exit_code == 0, result.stderr
    assert "agrees with the module" in result.stdout
    assert [v.name for v in onnx.load(output).graph.output] == ["z"]
    assert run("export", "my_factory_file:mak", *spec, "-o", tmp_path / "n.onnx").exit_code == 5
    assert not (tmp_path / "n.onnx").exists()


@pytest.mark.oracle
def test_export_takes_nested_inputs_by_dotted_names(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_gates.py").write_text(
        "from torch import nn\n\nclass Gate(nn.Module):\n"
        "    def forward(self, x, state):\n        return x * state[0] + state[1]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shapes = {"x": (3, 2), "state.0": (1, 2), "state.1": (3, 2)}
    arrays: dict[str, Any] = {name: np.ones(n, np.float32) for name, n in shapes.items()}
    np.savez(tmp_path / "x.npz", **arrays)
    axes = [f"--dynamic-axis={name}:1=n" for name in ("x", "state")]
    output = tmp_path / "gate.onnx"
    result = run("export", "my_gates:Gate", "--samples", tmp_path / "x.npz", *axes, "-o", output)
    assert result.exit_code == 0, result.stderr
    dims = {v.name: v.type.tensor_type.shape.dim for v in onnx.load(output).graph.input}
    assert {name: (d[0].dim_value, d[1].dim_param) for name, d in dims.items()} == {
        "x": (3, "n"),
        "state_0": (1, "n"),
        "state_1": (3, "n"),
    }


@pytest.mark.oracle
def test_export_takes_one_array_of_any_name_for_the_only_parameter(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_lone.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Linear(4, 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    np.savez(tmp_path / "x.npz", pictures=np.ones((3, 4), np.float32))
    output = tmp_path / "m.onnx"
    result = run("export", "my_lone:make", "--samples", tmp_path / "x.npz", "-o", output)
    assert result.exit_code == 0, result.stderr
    assert [v.name for v in onnx.load(output).graph.input] == ["input"]
