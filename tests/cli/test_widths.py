"""Every command on a terminal of 80 columns: no line is wider but commands, which are copied."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.cli import main
from tests.examples import images, model, network, save, weights

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = 80
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COPIED = re.compile(r" *(?:(?:next|again|repeat): +)?(?:onnxq |pip install|--exclude |--set )")
"""Beginnings of lines that are there to be copied."""
QUANTIZE = "quantize M X -o Q --target x86-vnni"
COMMANDS = (
    "inspect M",
    "inspect M --dynamic",
    f"{QUANTIZE} --check X --min-sqnr 5",
    "quantize M X -o P --target x86-avx2",  # some range is given up
    "verify M Q X",
    "verify M Q X --min-sqnr 90",
    "cross-check Q X",
    "predict Q X",
    "bench M Q X --runs 3",
    "inspect Q",
    "quantize-dynamic M -o D --check X",
    "quantize-weights M -o W --bits 4",
    "report M Q X -o R",
    "doctor",
    "targets",
)
SEARCH = "tune M X -o T --target x86-vnni --max-runs 2 --min-sqnr 20"


class _Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def long_names() -> onnx.ModelProto:
    """A square, a Log and a MatMul, with names as exporters of nested modules give them."""
    at = "/encoder/layers.11/attention/self/"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], [f"{at}a"], f"{at}query/MatMul"),
        helper.make_node("Mul", [f"{at}a", f"{at}a"], [f"{at}b"], f"{at}square/Mul"),
        helper.make_node("Add", [f"{at}b", "tiny"], [f"{at}c"], f"{at}shift/Add"),
        helper.make_node("Log", [f"{at}c"], [f"{at}d"], f"{at}activation/Log"),
        helper.make_node("MatMul", [f"{at}d", "v"], ["y"], f"{at}output/dense/MatMul"),
    ]
    constants = {
        "w": weights(1, 32, 64),
        "v": weights(2, 64, 32),
        "tiny": np.full(1, 1e-4, np.float32),
    }
    return model(nodes, constants, {"x": ["N", 32]})


def recurrent() -> onnx.ModelProto:
    """An LSTM behind a MatMul."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "matmul"),
        helper.make_node("LSTM", ["a", "wi", "wh"], ["y"], "lstm", hidden_size=16),
    ]
    constants = {"w": weights(1, 8, 16), "wi": weights(2, 1, 64, 16), "wh": weights(3, 1, 64, 16)}
    return model(nodes, constants, {"x": ["T", 1, 8]})


MODELS = {
    "convolutions": (network, images(8)),
    "long names": (long_names, weights(4, 16, 32) * 20),
    "recurrent": (recurrent, weights(5, 8, 1, 8)),
}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """A terminal of 80 columns, for stdout and stderr."""
    for name, value in {"COLUMNS": str(COLUMNS), "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return _Terminal()


def too_wide(text: str) -> list[str]:
    """Lines of more than 80 columns that could be broken: neither commands nor single words."""
    lines = [CONTROL.sub("", part) for part in re.split(r"[\r\n]+", text)]
    wide = [line.rstrip() for line in lines if len(line.rstrip()) > COLUMNS]
    return [line for line in wide if not COPIED.match(line) and " " in line.strip()]


def run_all(commands: tuple[str, ...], kind: str, folder: Path, terminal: _Terminal) -> list[str]:
    """Wide lines of all commands, each with its command."""
    make, x = MODELS[kind]
    files = {name: folder / f"{name.lower()}.onnx" for name in "MQDPWT"}
    files |= {"X": folder / "x.npz", "R": folder / "r.html"}
    save(make(), files["M"])
    np.savez(files["X"], x=x)
    found = []
    for command in commands:
        words = [str(files.get(word, word)) for word in command.split()]
        start = terminal.tell()
        with redirect_stdout(terminal), redirect_stderr(terminal), suppress(SystemExit):
            main(words, standalone_mode=False)
        text = terminal.getvalue()[start:]
        assert text, command
        assert "This is a fault of onnxq" not in text, text
        found += [f"{command}: {line}" for line in too_wide(text)]
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=() if k == "recurrent" else pytest.mark.nightly) for k in MODELS],
)
def test_no_line_of_a_command_is_wider_than_the_terminal(
    kind: str, tmp_path: Path, terminal: _Terminal
) -> None:
    assert run_all(COMMANDS, kind, tmp_path, terminal) == []


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::UserWarning")  # of a verdict below its floor
@pytest.mark.parametrize("kind", MODELS)
def test_no_line_of_a_search_is_wider_than_the_terminal(
    kind: str, tmp_path: Path, terminal: _Terminal
) -> None:
    assert run_all((SEARCH,), kind, tmp_path, terminal) == []
