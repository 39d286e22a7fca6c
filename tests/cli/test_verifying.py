"""Verify compares with float, and fails where a bound is broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from onnxq.checking.findings import Findings

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("bound", [("--min-sqnr", "99"), ("--max-lsb", "0.01")])
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


def test_too_few_paths_are_wrong_usage(run: Run, integers: tuple[Path, Path]) -> None:
    assert run("verify", *integers).exit_code == 2
