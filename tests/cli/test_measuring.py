from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onnxq.times import Costs
from onnxq.times.microbenchmarks import here
from onnxq.times.microbenchmarks.elements import element_links

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Run


def test_a_table_of_this_machine_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.times.microbenchmarks.here.RUNS", 2)
    monkeypatch.setattr(here, "links", lambda: list(element_links())[:3])
    output = tmp_path / "here.csv"
    result = run("costs", "-o", output, "--passes", 1, "--target", "x86-vnni")
    assert (result.exit_code, result.stdout.split()[1]) == (0, "4")
    assert Costs.load(output).target == "x86-vnni"


def test_a_target_that_is_not_known_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("costs", "-o", tmp_path / "here.csv", "--target", "x86-vni")
    assert result.exit_code == 5
    assert "x86-vnni" in result.stderr


def test_bench_works_without_data(run: Run, model_path: Path, quantized_path: Path) -> None:
    result = run("bench", model_path, quantized_path, "--batch-size", 2, "--runs", 2)
    assert result.exit_code == 0
    assert "x [2, 3, 8, 8]" in result.stdout


def test_bench_takes_samples(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path
) -> None:
    options = ("--runs", 2, "--json")
    result = run("bench", model_path, quantized_path, samples_path, *options)
    assert json.loads(result.stdout)["input_shapes"] == {"x": [1, 3, 8, 8]}


def test_bench_takes_shapes(run: Run, model_path: Path, quantized_path: Path) -> None:
    options = ("--runs", 1, "--shape", "x=3,3,8,8", "--json")
    result = run("bench", model_path, quantized_path, *options)
    assert json.loads(result.stdout)["input_shapes"] == {"x": [3, 3, 8, 8]}
    assert run("bench", model_path, quantized_path, "--shape", "x=a").exit_code == 2
