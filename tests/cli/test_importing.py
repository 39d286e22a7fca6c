"""The commands import-qdq, half and hub-folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from onnxq.cli import main
from onnxq.core.brief import size_text
from onnxq.errors import VerificationError
from tests.examples import images, network
from tests.qdq_files import inputs, modelopt, tensorrt


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(tensorrt(), tmp_path / "qat.onnx")
    np.savez(tmp_path / "samples.npz", x=inputs(tensorrt(), 16)["x"])
    return tmp_path / "qat.onnx"


def test_it_writes_the_file_and_says_how_far_it_is_from_the_given_one(file: Path) -> None:
    out, samples = file.with_name("out.onnx"), str(file.with_name("samples.npz"))
    arguments = ["import-qdq", str(file), "-o", str(out), "--check", samples]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert f"imported from {file}" in " ".join(result.stdout.split())
    assert "beside the given file, on 16 of 16 samples" in result.stdout


def test_the_rest_is_quantized_from_samples(file: Path) -> None:
    out, samples = file.with_name("out.onnx"), str(file.with_name("samples.npz"))
    arguments = ["import-qdq", str(file), "-o", str(out), "--quantize-rest", samples, "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["output"] == str(out)
    assert said["verdict"]["float_nodes"] == 0


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    arguments = ["import-qdq", str(tmp_path / "no.onnx"), "-o", str(tmp_path / "out.onnx")]
    assert CliRunner().invoke(main, arguments).exit_code != 0


def test_the_format_is_as_asked(tmp_path: Path) -> None:
    onnx.save(modelopt(), tmp_path / "qat.onnx")
    arguments = ["import-qdq", str(tmp_path / "qat.onnx"), "-o", str(tmp_path / "out.onnx")]
    assert CliRunner().invoke(main, [*arguments, "--format", "qoperator"]).exit_code == 0
    assert "QGemm" in {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node}


def test_half_writes_a_float16_file(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    np.savez(tmp_path / "s.npz", x=images(4))
    names = [str(tmp_path / name) for name in ("m.onnx", "s.npz", "h.onnx")]
    result = CliRunner().invoke(main, ["half", *names[:2], "-o", names[2], "--keep", "gemm"])
    assert result.exit_code == 0, result.output
    assert "1 Gemm (asked for)" in " ".join(result.stdout.split())
    sizes = " -> ".join(size_text(Path(name).stat().st_size) for name in names[::2])
    assert result.stdout.startswith(f"{names[2]}: float16, {sizes}\n")
    kinds = {t.data_type for t in onnx.load(names[2]).graph.initializer}
    assert kinds == {onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT}


def hub(tmp_path: Path, *words: str) -> Result:
    onnx.save(network(), tmp_path / "m.onnx")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    np.savez(tmp_path / "s.npz", x=images(16))
    names = ("--samples", str(tmp_path / "s.npz"), "-o", str(tmp_path / "out"))
    return CliRunner().invoke(main, ["hub-folder", str(tmp_path / "m.onnx"), *names, *words])


def test_a_hub_folder_is_told_as_a_table(tmp_path: Path) -> None:
    result = hub(tmp_path, "--variants", "fp32,fp16")
    assert result.exit_code == 0, result.output
    assert "onnx/model_fp16.onnx" in result.stdout
    assert sorted(path.name for path in (tmp_path / "out" / "onnx").iterdir()) == [
        "model.onnx",
        "model_fp16.onnx",
    ]


def test_a_variant_that_is_left_out_is_an_exit_code(tmp_path: Path) -> None:
    result = hub(tmp_path, "--variants", "fp32,fp16", "--min-sqnr", "200", "--json")
    assert result.exit_code == VerificationError.exit_code
    kept, left = json.loads(result.stdout)["files"]
    assert (kept["why"], left["variant"]) == ("", "fp16")
    assert "fp16: below 200 dB" in " ".join(result.stderr.split())
