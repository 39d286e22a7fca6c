"""Verify compares with float and with the reference, and fails with codes of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import catalog
from onnxq.checking.cross_findings import CrossFindings
from onnxq.checking.findings import Findings
from onnxq.errors import UnsupportedError
from tests.examples import quantized_matmul, save, weights

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array
    from tests.cli.conftest import Run


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


@pytest.fixture
def integers(tmp_path: Path) -> tuple[Path, Path]:
    """A quantized model with nothing in float, and samples."""
    np.savez(tmp_path / "m.npz", x=weights(0, 6, 8))
    return save(quantized_matmul(np.array(3, np.uint8)), tmp_path / "i.onnx"), tmp_path / "m.npz"


def _flipped(codes: Array) -> Array:
    return np.asarray(codes.astype(np.uint8) ^ np.uint8(1))


def test_reference_needs_no_float_model(run: Run, integers: tuple[Path, Path]) -> None:
    result = run("verify", *integers, "--reference", "--batch-size", 4)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "QLinearMatMul" in result.stdout
    assert "0 differ" in result.stdout


def test_reference_prints_findings_as_json(run: Run, integers: tuple[Path, Path]) -> None:
    result = run("verify", "--reference", *integers, "--json", "--threads", 2)
    findings = CrossFindings.from_dict(json.loads(result.stdout))
    assert (findings.batches, findings.differing) == (6, 0)


def test_reference_does_not_read_a_float_model(
    run: Run, model_path: Path, integers: tuple[Path, Path]
) -> None:
    result = run("verify", model_path, *integers, "--reference")
    assert result.exit_code == 0
    assert "does not read the float model" in result.stderr


def test_a_difference_to_the_reference_is_exit_code_8_unless_it_is_allowed(
    run: Run, integers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = catalog.find_integer("QLinearMatMul")
    assert operator is not None
    kernel = operator.kernel
    monkeypatch.setattr(operator, "kernel", lambda *given: (_flipped(kernel(*given)[0]),))
    result = run("verify", *integers, "--reference")
    assert result.exit_code == 8
    assert "elements differ, by up to 1 codes" in result.stderr
    assert run("verify", *integers, "--reference", "--max-steps", 1).exit_code == 0
    assert run("verify", *integers, "--reference", "--max-differing", 0.5).exit_code == 8
    assert run("verify", *integers, "--reference", "--max-differing", 1).exit_code == 0


def test_nodes_without_kernel_fail_unless_they_are_allowed(
    run: Run, integers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedError("not here")

    operator = catalog.find_integer("QLinearMatMul")
    monkeypatch.setattr(operator, "kernel", refuse)
    result = run("verify", *integers, "--reference")
    assert result.exit_code == 8
    assert "was not checked: node QLinearMatMul 'matmul': not here" in result.stderr
    allowed = run("verify", *integers, "--reference", "--allow-unchecked", "--json")
    assert allowed.exit_code == 0
    assert "note: end to end was not checked: node QLinearMatMul" in allowed.stderr
    assert "note: QLinearMatMul 'matmul' was not checked" in allowed.stderr


def test_a_dynamic_model_of_weights_alone_is_compared_end_to_end(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    made = tmp_path / "half.onnx"
    written = run("quantize-dynamic", model_path, "-o", made, "--dtype", "float16")
    assert written.exit_code == 0, written.stderr
    result = run("verify", made, samples_path, "--reference")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "no node computes in integers: at most weights" in result.stdout


def test_a_float_model_does_not_look_like_success(
    run: Run, model_path: Path, integers: tuple[Path, Path]
) -> None:
    result = run("verify", model_path, integers[1], "--reference")
    assert result.exit_code != 0
    assert "0 differ" not in result.stdout.splitlines()[-3:]


@pytest.mark.parametrize("name", ["--max-steps", "--max-output-steps", "--max-differing"])
def test_negative_bounds_are_wrong_usage(run: Run, integers: tuple[Path, Path], name: str) -> None:
    result = run("verify", *integers, "--reference", name, -1)
    assert result.exit_code == 2
    assert "range" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--reference", "--min-sqnr", "20"),
        ("--reference", "--only", "y"),
        ("--max-differing", "0.1"),
        ("--max-output-steps", "1"),
        ("--allow-unchecked",),
        (),
    ],
    ids=str,
)
def test_options_of_the_other_comparison_are_wrong_usage(
    run: Run, integers: tuple[Path, Path], options: tuple[str, ...]
) -> None:
    assert run("verify", *integers, *options).exit_code == 2


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_paths_are_wrong_usage(run: Run, integers: tuple[Path, Path], count: int) -> None:
    assert run("verify", *integers[:count], "--reference").exit_code == 2


@pytest.fixture
def fast_path(run: Run, model_path: Path, samples_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "fast.onnx"
    made = run("quantize", model_path, samples_path, "-o", path, "--target", "x86-vnni")
    assert made.exit_code == 0
    return path


def test_isa_says_where_integers_would_differ_and_fails_with_its_own_code(
    run: Run, fast_path: Path, samples_path: Path
) -> None:
    result = run("verify", fast_path, samples_path, "--isa", "all")
    assert result.exit_code == 10
    assert "x86-avx2, x86-avx512: where sums differ" in result.stdout
    assert "equal where codes are; floats decide" in " ".join(result.stdout.split())
    assert "lie so near to a tie" in " ".join(result.stdout.split())
    assert "conv2" in result.stdout
    assert "x86-avx2, x86-avx512: 'conv" in result.stderr


def test_isa_without_samples_asks_what_can_differ(run: Run, fast_path: Path) -> None:
    assert run("verify", fast_path, "--isa", "x86-vnni,arm64").exit_code == 0
    result = run("verify", fast_path, "--isa", "x86-avx2")
    assert result.exit_code == 10
    assert "where sums can differ" in result.stdout


def test_isa_of_a_portable_model_passes(run: Run, quantized_path: Path, samples_path: Path) -> None:
    result = run("verify", quantized_path, samples_path, "--isa", "all", "--json")
    assert result.exit_code == 0
    value = json.loads(result.stdout)
    assert value["differing"] == []
    assert value["batches"] == 8


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--isa", "avx2"], 5, "target 'avx2' is not known"),
        (["--isa", "all", "--reference"], 2, "--reference has no meaning with --isa"),
        (["--isa", "all", "--min-sqnr", "9"], 2, "--min-sqnr has no meaning with --isa"),
    ],
)
def test_isa_refuses(
    run: Run, quantized_path: Path, arguments: list[str], code: int, message: str
) -> None:
    result = run("verify", quantized_path, *arguments)
    assert result.exit_code == code
    assert message in result.stderr
