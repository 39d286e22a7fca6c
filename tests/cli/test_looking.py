from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from onnxq import targets
from onnxq.stages.findings import Findings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.fixture
def quantized_path(run: Run, model_path: Path, samples_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "q.onnx"
    assert run("quantize", model_path, samples_path, "-o", path).exit_code == 0
    return path


def test_inspect_needs_no_data_and_shows_every_node(run: Run, model_path: Path) -> None:
    result = run("inspect", model_path)
    assert (result.exit_code, result.stderr) == (0, "")
    for name in ("conv1", "relu1", "conv2", "add", "softmax", "pool", "flatten", "gemm"):
        assert name in result.stdout


def test_inspect_as_json(run: Run, model_path: Path) -> None:
    value = json.loads(run("inspect", model_path, "--json", "--target", "qnnpack").stdout)
    assert value["target"] == "arm64"
    assert {n["decision"] for n in value["nodes"]} == {"integers", "float"}
    assert {"x", "w1", "r1", "y"} <= set(value["tensors"])


def test_verify_prints_tables(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path
) -> None:
    result = run("verify", model_path, quantized_path, samples_path)
    assert result.exit_code == 0
    assert "SQNR dB" in result.stdout
    assert "QLinearConv" in result.stdout


def test_verify_prints_findings_as_json(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path
) -> None:
    result = run("verify", model_path, quantized_path, samples_path, "--json", "--batch-size", 4)
    assert Findings.from_dict(json.loads(result.stdout)).batches == 2


@pytest.mark.parametrize("bound", [("--min-sqnr", "99"), ("--max-steps", "0.01")])
def test_a_broken_bound_is_exit_code_8_after_the_findings(
    run: Run,
    model_path: Path,
    quantized_path: Path,
    samples_path: Path,
    bound: tuple[str, str],
) -> None:
    result = run("verify", model_path, quantized_path, samples_path, "--json", *bound)
    assert result.exit_code == 8
    assert "wanted at" in result.stderr
    Findings.from_dict(json.loads(result.stdout))


def test_bounds_that_hold_are_exit_code_0(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path
) -> None:
    bounds = ("--min-sqnr", "20", "--only", "y")
    assert run("verify", model_path, quantized_path, samples_path, *bounds).exit_code == 0


def test_bench_works_without_data(run: Run, model_path: Path, quantized_path: Path) -> None:
    result = run("bench", model_path, quantized_path, "--batch", 2, "--runs", 2)
    assert result.exit_code == 0
    assert "x [2, 3, 8, 8]" in result.stdout


def test_bench_takes_samples(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path
) -> None:
    options = ("--runs", 2, "--json")
    result = run("bench", model_path, quantized_path, samples_path, *options)
    assert json.loads(result.stdout)["input_shapes"] == {"x": [1, 3, 8, 8]}


def test_targets_are_listed(run: Run) -> None:
    text = run("targets").stdout
    assert all(t.name in text for t in targets.all_targets())
    value = json.loads(run("targets", "--json").stdout)
    assert value["default"] == "portable"
    assert value["aliases"]["fbgemm"] == "x86-avx2"
