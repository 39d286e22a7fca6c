"""No control character of any name reaches stdout, stderr, JSON or HTML, by any command.

(Some 20 CPU seconds: every command, in each of its ways to say something.)
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.examples import weights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202e\u2066\r\nError: forged\n\x08\t\x00"[:-1]
"""Escape sequences of both kinds, DEL, bidirectional marks, a line that looks like one of ours."""
FILE = EVIL.replace("/", "") + "\udcff"


def name(text: str) -> str:
    return f"{text}{EVIL}{text}"


def model(path: Path) -> Path:
    """Conv, Exp, MatMul and an operator that nobody knows the name of; every name is hostile."""
    node = helper.make_node
    x, w, b, c, e, y, v = map(name, "xwbceyv")
    nodes = [
        node("Conv", [x, w, b], [c], name("conv"), pads=[1] * 4),
        node("Exp", [c], [e], name("exp")),
        node("GlobalAveragePool", [e], ["p"], name("pool")),
        node("Flatten", ["p"], ["f"], name("flat")),
        node("MatMul", ["f", v], [y], name("fc")),
    ]
    arrays = {w: weights(1, 4, 3, 3, 3), b: weights(2, 4), v: weights(3, 4, 2)}
    graph = helper.make_graph(
        nodes,
        name("graph"),
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [name("N"), 3, 8, 8])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, key) for key, array in arrays.items()],
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
        producer_name=name("tool"),
        producer_version=name("1"),
        doc_string=name("doc"),
    )
    helper.set_model_props(made, {name("key"): name("text")})
    onnx.save(made, path)
    return path


def is_raw(text: str) -> list[str]:
    """Characters that do not print, or forge."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl") and c != "\n"]


def texts(value: object) -> Iterator[str]:
    """Texts in a value of JSON, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        yield from value
        yield from texts([*value.values()])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / FILE
    made.mkdir()
    model(made / f"m{FILE}.onnx")
    samples = np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype(np.float32)
    arrays: dict[str, Any] = {name("x"): samples}
    np.savez(made / "s.npz", **arrays)
    return made


COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "M", "-v"),
    "inspect --json": ("inspect", "M", "--json"),
    "inspect --why": ("inspect", "M", "--why", name("exp")),
    "inspect --why of none": ("inspect", "M", "--why", name("none")),
    "inspect dynamic": ("inspect", "M", "--dynamic", "-v"),
    "inspect of a quantized file": ("inspect", "Q", "-v"),
    "quantize": ("quantize", "M", "S", "-o", "O", "-v"),
    "quantize --json": ("quantize", "M", "S", "-o", "O", "--json"),
    "quantize -vv --debug": ("quantize", "M", "M", "-o", "O", "-vv", "--debug"),
    "quantize --report": ("quantize", "M", "S", "-o", "O", "--report", "HTML"),
    "quantize --exclude of none": ("quantize", "M", "S", "-o", "O", "--exclude", name("none")),
    "quantize --min-sqnr": ("quantize", "M", "S", "-o", "O", "--min-sqnr", "999"),
    "quantize-dynamic": ("quantize-dynamic", "M", "-o", "O", "-v"),
    "quantize-dynamic --json": ("quantize-dynamic", "M", "-o", "O", "--json"),
    "quantize-weights": ("quantize-weights", "M", "-o", "O", "-v"),
    "quantize-cache": ("quantize-cache", "M", "S", "-o", "O"),
    "calibrate": ("calibrate", "M", "S", "-o", "O", "-v"),
    "verify": ("verify", "M", "Q", "S", "-v"),
    "verify --json": ("verify", "M", "Q", "S", "--json"),
    "report": ("report", "M", "Q", "S", "-o", "HTML"),
    "cross-check": ("cross-check", "Q", "S", "-v"),
    "cross-check --json": ("cross-check", "Q", "S", "--json"),
    "predict": ("predict", "Q", "S", "--on", "x86-vnni", "-v"),
    "bench": ("bench", "M", "Q", "-v"),
    "bench --json": ("bench", "M", "Q", "--json"),
    "tune": ("tune", "M", "S", "-o", "O", "--time", "5", "-v"),
    "genai-folder": ("genai-folder", "M", "-o", "O"),
    "hub-folder": ("hub-folder", "M", "-o", "O"),
    "export": ("export", f"m{FILE}:f", "-o", "O"),
    "a file that is not there": ("inspect", "NONE"),
    "a file that is no model": ("inspect", "S"),
    "samples of another model": ("quantize", "M", "WRONG", "-o", "O"),
}


@pytest.fixture
def paths(folder: Path) -> dict[str, str]:
    arrays: dict[str, Any] = {name("z"): np.ones((2, 3), np.float32)}
    np.savez(folder / "w.npz", **arrays)
    found = {
        "M": folder / f"m{FILE}.onnx",
        "S": folder / "s.npz",
        "O": folder / f"o{FILE}.onnx",
        "Q": folder / f"q{FILE}.onnx",
        "HTML": folder / f"r{FILE}.html",
        "NONE": folder / f"none{FILE}.onnx",
        "WRONG": folder / "w.npz",
    }
    return {key: str(path) for key, path in found.items()}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", COMMANDS)
def test_names_are_shown_and_never_obeyed(
    way: str, paths: dict[str, str], run: Run, folder: Path
) -> None:
    command = [paths.get(word, word) for word in COMMANDS[way]]
    if paths["Q"] in command:
        made = run("quantize", paths["M"], paths["S"], "-o", paths["Q"], "--no-verdict", "-q")
        assert made.exit_code == 0, made.stderr
    result = run(*command)
    assert "fault of onnxq" not in result.stderr
    for text in (result.stdout, result.stderr):
        assert is_raw(text) == []
        assert not re.search("^Error: forged", text, re.MULTILINE)
    if "--json" in command and result.exit_code == 0:
        assert any(EVIL in text for text in texts(json.loads(result.stdout)))
    for page in folder.glob("*.html"):
        assert is_raw(page.read_text("utf-8")) == []
