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
        "from torch import nn\n\nclass Lone(nn.Linear):\n    def __init__(self):\n"
        "        super().__init__(4, 2)\n\n"
        "    def forward(self, x, mask=None):\n        return super().forward(x)\n\n"
        "class Nested(Lone):\n    def forward(self, x):\n        return super().forward(x[0])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    x = np.ones((3, 4), np.float32)
    np.savez(tmp_path / "lone.npz", pictures=x)
    np.savez(tmp_path / "nested.npz", **{"x.0": x})  # type: ignore[arg-type]  # numpy's allow_pickle
    for module, samples, name in (("Lone", "lone", "x"), ("Nested", "nested", "x_0")):
        output = tmp_path / f"{module}.onnx"
        given = ("--samples", tmp_path / f"{samples}.npz")
        result = run("export", f"my_lone:{module}", *given, "-o", output)
        assert result.exit_code == 0, result.stderr
        assert ("'pictures' is taken for 'x'" in result.stderr) == (module == "Lone")
        assert [v.name for v in onnx.load(output).graph.input] == [name]
        assert [n.op_type for n in onnx.load(output).graph.node] == ["Gemm"]
