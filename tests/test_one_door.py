"""Every command, and every public function that takes a model, goes through `check_model`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import onnxq
from onnxq import reference
from onnxq.checking import bench, execution
from onnxq.cli import main
from onnxq.errors import ModelError
from onnxq.graph import io
from tests.examples import images, network, save

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

KINDS = ("ModelSource", "ir.Model", "ModelProto")
"""Words in the annotation of a parameter that is a model."""
MADE_HERE = {"save"}
"""Takes what this package made; asks only where external data lie: tests/graph/test_saving.py."""
CALLS: dict[str, Callable[[Any], object]] = {
    "bench": lambda m: onnxq.bench(m, m),
    "inspect": lambda m: onnxq.inspect(m),
    "cross_check": lambda m: onnxq.cross_check(m, {"x": images(2)}),
    "predict": lambda m: onnxq.predict(m),
    "prove": lambda m: onnxq.prove(m),
    "prepare": lambda m: onnxq.prepare(m),
    "quantize": lambda m: onnxq.quantize(m, {"x": images(2)}),
    "quantize_dynamic": lambda m: onnxq.quantize_dynamic(m),
    "quantize_cache": lambda m: onnxq.quantize_cache(m, {"x": images(2)}),
    "quantize_weights": lambda m: onnxq.quantize_weights(m),
    "half": lambda m: onnxq.half(m, {"x": images(2)}),
    "import_qdq": lambda m: onnxq.import_qdq(m),
    "genai_folder": lambda m: onnxq.genai_folder(m, "folder"),
    "tune": lambda m: onnxq.tune(m, {"x": images(8)}),
    "verify": lambda m: onnxq.verify(m, m, {"x": images(2)}),
    "evaluator": lambda m: reference.evaluator(m),
    "integer_evaluator": lambda m: reference.integer_evaluator(reference.integer_form(m)),
    "integer_form": lambda m: reference.integer_form(m),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("MODEL",),
    "calibrate": ("MODEL", "SAMPLES", "-o", "OUT"),
    "quantize": ("MODEL", "SAMPLES", "-o", "OUT"),
    "quantize-dynamic": ("MODEL", "-o", "OUT"),
    "quantize-weights": ("MODEL", "-o", "OUT"),
    "quantize-cache": ("MODEL", "SAMPLES", "-o", "OUT"),
    "half": ("MODEL", "SAMPLES", "-o", "OUT"),
    "import-qdq": ("MODEL", "-o", "OUT"),
    "genai-folder": ("MODEL", "-o", "OUT"),
    "hub-folder": ("MODEL", "-o", "OUT"),
    "tune": ("MODEL", "SAMPLES", "-o", "OUT"),
    "verify": ("MODEL", "MODEL", "SAMPLES"),
    "cross-check": ("MODEL", "SAMPLES"),
    "report": ("MODEL", "MODEL", "SAMPLES", "-o", "OUT"),
    "predict": ("MODEL",),
    "bench": ("MODEL", "MODEL"),
}
WITHOUT_A_MODEL = {"costs", "doctor", "export", "targets"}


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The door refuses whatever comes."""

    def refuse(_model: object, where: str) -> None:
        raise ModelError(f"{where}: closed")

    monkeypatch.setattr(io, "check_model", refuse)


def takes_a_model(function: Callable[..., object]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(kind in str(p.annotation) for p in parameters for kind in KINDS)


def public(module: ModuleType) -> set[str]:
    found = {name: getattr(module, name) for name in module.__all__}
    return {n for n, one in found.items() if inspect.isfunction(one) and takes_a_model(one)}


def test_the_calls_are_all_that_take_a_model() -> None:
    assert public(onnxq) | public(reference) == CALLS.keys() | MADE_HERE


FORMS: dict[str, Callable[[Path], object]] = {
    "path": lambda path: path,
    "text": str,
    "ModelProto": onnx.load,
    "Model": ir.load,
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name in CALLS
        for form in FORMS
        if form == "Model" or not name.startswith("integer_")  # which take an onnx_ir.Model
    ],
)
def test_function_asks_the_door(name: str, form: str, tmp_path: Path) -> None:
    model = FORMS[form](save(network(), tmp_path / "m.onnx"))
    with pytest.raises(ModelError, match="closed"):
        CALLS[name](model)


@pytest.mark.parametrize("run", [io.size_bytes, execution.execution, lambda p: bench.bench(p, p)])
def test_what_commands_call_asks_the_door(run: Callable[[Path], object], tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="closed"):
        run(path)


def test_the_commands_are_all_that_take_a_model() -> None:
    assert isinstance(main, click.Group)
    assert COMMANDS.keys() | WITHOUT_A_MODEL == main.commands.keys()


@pytest.mark.parametrize(
    "words",
    [(name, *words) for name, words in COMMANDS.items()],
)
def test_command_asks_the_door(words: tuple[str, ...], tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=images(2), allow_pickle=False)
    places = {"MODEL": path, "SAMPLES": tmp_path / "x.npz", "OUT": tmp_path / "out"}
    result = CliRunner().invoke(main, [str(places.get(word, word)) for word in words])
    assert result.exit_code == ModelError.exit_code
    assert "closed" in result.stderr
