"""Rows that commands print on a terminal of 80 columns: the answer first, the rest with -v."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from models.cifar10 import load_sample
from onnxq.cli import main
from onnxq.report.print_verdict import MOST_ROWS
from scripts._pages.given import put
from tests.cli.test_widths import COLUMNS, CONTROL, _Terminal
from tests.examples import model, save, weights

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

MOST_LINES = 40
DEEP = 120
"""Nodes of a graph that has more of them than anybody reads."""
PLACEHOLDER = re.compile(r"\b(SAMPLES|MODEL|OUT|FILE|DB)\b")

pytestmark = pytest.mark.oracle  # needs torch for the export


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of the repository, and 16 images."""
    place = tmp_path_factory.mktemp("lines")
    put(["resnet20.onnx", "mobilenetv2.onnx", "transformer.onnx"], place)
    np.savez(place / "x.npz", image=load_sample("calibration")[0][:16])
    return place


@pytest.fixture
def lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Filled by `said` in this test: what a command prints in the folder, on a terminal."""
    for name, value in {"COLUMNS": str(COLUMNS), "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    return []


def said(command: str) -> list[str]:
    """Rows on stdout; commands, which are copied, have one each."""
    terminal = _Terminal()
    with redirect_stdout(terminal), redirect_stderr(io.StringIO()), suppress(SystemExit):
        main(command.split(), standalone_mode=False)
    return CONTROL.sub("", terminal.getvalue()).rstrip("\n").split("\n")


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize(
    "command",
    [
        "quantize resnet20.onnx x.npz -o r.onnx",
        "quantize mobilenetv2.onnx x.npz -o m.onnx --target x86-vnni",
        "quantize transformer.onnx x.npz -o t.onnx",
        "quantize-dynamic transformer.onnx -o d.onnx",
        "quantize-dynamic transformer.onnx -o d.onnx --check x.npz --target x86-vnni",
        "quantize-weights transformer.onnx -o w.onnx",
        "quantize-weights resnet20.onnx x.npz -o w.onnx",
        "tune resnet20.onnx x.npz -o u.onnx --max-runs 2 --min-sqnr 5",
    ],
)
def test_a_command_that_quantizes_answers_in_twelve_rows(command: str) -> None:
    rows = said(command)
    assert len(rows) <= MOST_ROWS, "\n".join(rows)
    assert rows[0].startswith(command.split("-o ")[1].split()[0])
    assert any(row.startswith("verdict: ") for row in rows)
    assert not PLACEHOLDER.search("\n".join(rows))


def deep() -> onnx.ModelProto:
    """A chain of Conv and Relu with a Softmax at its end."""
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}
    for i in range(DEEP // 2):
        constants[f"w{i}"] = weights(i, 4, 4, 1, 1)
        read = f"b{i - 1}" if i else "x"
        nodes += [
            helper.make_node("Conv", [read, f"w{i}"], [f"a{i}"], f"conv{i}"),
            helper.make_node("Relu", [f"a{i}"], [f"b{i}"], f"relu{i}"),
        ]
    nodes.append(helper.make_node("Softmax", [f"b{DEEP // 2 - 1}"], ["y"], "softmax"))
    return model(nodes, constants, {"x": ["N", 4, 8, 8]})


@pytest.mark.usefixtures("lines")
def test_inspect_and_verify_of_a_deep_graph_have_forty_rows(folder: Path) -> None:
    save(deep(), folder / "deep.onnx")
    np.savez(folder / "deep.npz", x=weights(1, 2, 4, 8, 8))
    said("quantize deep.onnx deep.npz -o deep.int8.onnx --all-integers --repair off")
    for command in (
        "inspect deep.onnx",
        "inspect deep.onnx --dynamic --objective size",
        "verify deep.onnx deep.int8.onnx deep.npz",
        "inspect deep.int8.onnx",
    ):
        rows = said(command)
        assert 2 < len(rows) <= MOST_LINES, "\n".join(rows)
        assert "int8" in command.split()[1] or any("-v shows them" in row for row in rows)
