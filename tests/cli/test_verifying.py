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


# --- until 1.0: --reference and --isa


def test_reference_does_not_read_a_float_model_and_says_its_new_name(
    run: Run, model_path: Path, integers: tuple[Path, Path]
) -> None:
    result = run("verify", model_path, *integers, "--reference")
    assert result.exit_code == 0
    assert "does not read the float model" in result.stderr
    assert "note: `verify --reference` is `onnxq cross-check QUANTIZED SAMPLES`" in result.stderr


def test_reference_takes_what_cross_check_takes(run: Run, integers: tuple[Path, Path]) -> None:
    options = ("--max-steps", 0, "--max-differing", 0, "--allow-unchecked", "--json")
    old, new = (
        run("verify", *integers, "--reference", *options),
        run("cross-check", *integers, *options),
    )
    assert old.stdout == new.stdout
    assert (old.stderr.count("\n"), new.stderr) == (1, "")


def test_isa_says_what_predict_says_and_its_new_name(run: Run, fast_path: Path) -> None:
    old = run("verify", fast_path, "--isa", "x86-avx2, x86-vnni", "--json")
    new = run("predict", fast_path, "--machines", "x86-avx2,x86-vnni", "--json")
    assert (old.exit_code, old.stdout) == (10, new.stdout)
    assert "`onnxq predict QUANTIZED [SAMPLES] --machines NAMES`" in old.stderr


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
