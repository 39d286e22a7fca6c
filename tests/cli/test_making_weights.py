"""The command quantize-weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from onnxq.cli import main
from tests.dynamic_models import normal, parsed

if TYPE_CHECKING:
    from pathlib import Path

MODEL = parsed("g (float[n, 32] x) => (float[n, 8] y) { y = MatMul(x, w) }", {"w": normal(32, 8)})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(MODEL, tmp_path / "model.onnx")
    np.savez(tmp_path / "samples.npz", x=normal(64, 32, seed=5))
    return tmp_path / "model.onnx"


def test_it_writes_weights_in_blocks_and_says_how(model: Path) -> None:
    out = model.with_name("out.onnx")
    samples = str(model.with_name("samples.npz"))
    arguments = ["quantize-weights", str(model), samples, "-o", str(out), "--bits", "8", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["verdict"]["outputs"][0]["sqnr_db"] > 30
    assert "8 bits in blocks of 32, affine, gptq" in result.stdout
    assert [node.op_type for node in onnx.load(out).graph.node] == ["MatMulNBits"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--bits", "3"], 7, "Only 2b, 4b and 8b"),
        (["--block", "48"], 5, "nearest is 32"),
        (["--method", "gtpq"], 5, "Did you mean 'gptq'"),
        (["--method", "gptq"], 6, "looks at samples"),
        (["--leave", "nothing"], 5, "no node 'nothing'"),
    ],
)
def test_what_it_cannot_do_is_said_and_nothing_is_written(
    model: Path, options: list[str], code: int, words: str
) -> None:
    out = model.with_name("out.onnx")
    result = CliRunner().invoke(main, ["quantize-weights", str(model), "-o", str(out), *options])
    assert result.exit_code == code
    assert words in result.stderr
    assert not out.exists()
