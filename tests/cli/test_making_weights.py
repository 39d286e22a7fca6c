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
    from collections.abc import Callable
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
    assert "8 bits in groups of 32, affine, gptq" in result.stdout
    assert [node.op_type for node in onnx.load(out).graph.node] == ["MatMulNBits"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--bits", "3"], 7, "Only 2b, 4b and 8b"),
        (["--group-size", "48"], 5, "nearest is 32"),
        (["--method", "gtpq"], 5, "Did you mean 'gptq'"),
        (["--method", "gptq"], 6, "looks at samples"),
        (["--exclude", "nothing"], 5, "no node 'nothing'"),
        (["--bits", "8", "--scheme", "real"], 7, "Ask for 'affine'"),
        (["--scheme", "real", "--format", "qdq"], 5, "Ask for scheme 'affine'"),
        (["--embedding-bits", "4", "--format", "qdq"], 5, "Leave embeddings in float"),
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


def run(model: Path, out: Path, *options: str) -> str:
    samples = str(model.with_name("samples.npz"))
    given = ["quantize-weights", str(model), samples, "-o", str(out), *options]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_journal_is_gone_on_from_to_the_same_file(model: Path) -> None:
    journal, out = model.with_name("integers"), model.with_name("out.onnx")
    run(model, out)
    assert sorted(path.name for path in model.parent.iterdir()) == [
        "model.onnx",
        "out.onnx",
        "samples.npz",
    ]
    alone = out.read_bytes()
    run(model, out, "--journal", str(journal))
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-10])
    run(model, out, "--journal", str(journal))
    assert out.read_bytes() == alone
    assert journal.read_bytes() == whole


@pytest.mark.nightly  # two processes start
def test_workers_write_the_same_file(model: Path) -> None:
    alone, many = model.with_name("alone.onnx"), model.with_name("many.onnx")
    run(model, alone)
    run(model, many, "--jobs", "2")
    assert many.read_bytes() == alone.read_bytes()


def test_mixed_bits_show_what_each_size_costs(model: Path) -> None:
    out = model.with_name("out.onnx")
    said = run(model, out, "--bits-average", "4.5", "-v")
    assert "predicted dB" in said
    assert "chosen" in said
    told = json.loads(run(model, out, "--size", "0.4", "--json"))["mixed_bits"]
    assert list(told["chosen"]["bits"].values()) == [8]
    assert told["front"][0]["linear_layers"] == {"2 bits": 1, "4 bits": 0, "8 bits": 0, "float": 0}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--bits-average", "4", "--size", "0.2"], 5, "one of the two"),
        (["--bits-average", "1"], 5, "wanted 2 to 32"),
        (["--size", "2"], 5, "wanted a part of the float model's size"),
        (["--size", "0.01"], 5, "in 2 bits they take"),
    ],
)
def test_sizes_that_cannot_be_met_are_said(
    model: Path, options: list[str], code: int, words: str
) -> None:
    out, samples = model.with_name("out.onnx"), str(model.with_name("samples.npz"))
    given = ["quantize-weights", str(model), samples, "-o", str(out), *options]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == code
    assert words in result.stderr
    assert not out.exists()


def _no_linear_layer(folder: Path) -> None:
    onnx.save(
        parsed("g (float[n, 32] x) => (float[n, 32] y) { y = Relu(x) }", {}), folder / "m.onnx"
    )


def _cut_off(folder: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    (folder / "w").write_bytes((folder / "w").read_bytes()[:100])


def _spoilt(folder: Path) -> None:
    weights = {"w": normal(32, 8) * np.float32(np.nan)}
    text = "g (float[n, 32] x) => (float[n, 8] y) { y = MatMul(x, w) }"
    onnx.save(parsed(text, weights), folder / "m.onnx")


def _other_words(folder: Path) -> None:
    text = "g (int64[n] ids) => (float[n, 8] y) { e = Gather(t, ids)  y = MatMul(e, w) }"
    onnx.save(parsed(text, {"t": normal(5, 32), "w": normal(32, 8)}), folder / "m.onnx")
    np.savez(folder / "samples.npz", ids=np.full(4, 7))


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (_no_linear_layer, 3, "no linear layer"),
        (_cut_off, 3, "too short: it has 100 bytes"),
        (_spoilt, 3, "weight 'w' holds NaN or Inf"),
        (_other_words, 6, "out of"),
    ],
)
def test_files_that_do_not_do_are_said_in_a_line_and_nothing_is_written(
    tmp_path: Path, make: Callable[[Path], None], code: int, words: str
) -> None:
    np.savez(tmp_path / "samples.npz", x=normal(64, 32, seed=5))
    make(tmp_path)
    before = sorted(tmp_path.iterdir())
    given = ["quantize-weights", str(tmp_path / "m.onnx"), str(tmp_path / "samples.npz")]
    result = CliRunner().invoke(main, [*given, "-o", str(tmp_path / "out.onnx")])
    assert result.exit_code == code
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
