"""Machines on which integers would differ: named, with their layers, and an exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_it_says_where_integers_would_differ_and_fails_with_its_own_code(
    run: Run, fast_path: Path, samples_path: Path
) -> None:
    result = run("predict", fast_path, samples_path)
    assert result.exit_code == 10
    assert "x86-avx2, x86-avx512: where sums differ" in result.stdout
    assert "equal where integers are; floats decide" in " ".join(result.stdout.split())
    assert "lie so near to a tie" in " ".join(result.stdout.split())
    assert "conv2" in result.stdout
    assert "x86-avx2, x86-avx512: 'conv" in result.stderr


def test_without_samples_it_asks_what_can_differ(run: Run, fast_path: Path) -> None:
    assert run("predict", fast_path, "--machines", "x86-vnni,arm64").exit_code == 0
    result = run("predict", fast_path, "--machines", "x86-avx2")
    assert result.exit_code == 10
    assert "where sums can differ" in result.stdout


def test_a_portable_model_differs_nowhere(
    run: Run, quantized_path: Path, samples_path: Path
) -> None:
    result = run("predict", quantized_path, samples_path, "--json")
    assert result.exit_code == 0
    value = json.loads(result.stdout)
    assert value["differing"] == []
    assert value["batches"] == 8


def test_a_machine_that_is_not_known_is_refused(run: Run, quantized_path: Path) -> None:
    result = run("predict", quantized_path, "--machines", "avx2")
    assert result.exit_code == 5
    assert "target 'avx2' is not known" in result.stderr


def test_no_machine_is_refused(run: Run, quantized_path: Path) -> None:
    result = run("predict", quantized_path, "--machines", ",")
    assert result.exit_code == 5
    assert "target '' is not known" in result.stderr


def test_prove_bounds_every_sum_for_any_input(run: Run, fast_path: Path) -> None:
    proved = run("predict", fast_path, "--prove", "--machines", "x86-vnni")
    assert proved.exit_code == 0
    assert "proved; error of outputs beside exact integers" in proved.stdout
    result = run("predict", fast_path, "--prove", "--machines", "x86-avx2")
    assert result.exit_code == 10
    assert "can saturate" in result.stdout
    assert "x86-avx2: 'conv" in result.stderr


def test_prove_takes_no_samples(run: Run, fast_path: Path, samples_path: Path) -> None:
    result = run("predict", fast_path, samples_path, "--prove")
    assert result.exit_code == 2
    assert "leave SAMPLES out" in result.stderr
