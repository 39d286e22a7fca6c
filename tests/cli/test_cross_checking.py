"""Every integer against the reference kernels: differences fail, unless they are allowed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import catalog
from onnxq.checking.cross_findings import CrossFindings
from onnxq.errors import UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array
    from tests.cli.conftest import Run


def _flipped(integers: Array) -> Array:
    return np.asarray(integers.astype(np.uint8) ^ np.uint8(1))


def test_every_integer_is_compared_and_no_float_model_is_needed(
    run: Run, integers: tuple[Path, Path]
) -> None:
    result = run("cross-check", *integers, "--batch-size", 4)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "QLinearMatMul" in result.stdout
    assert "0 differ" in result.stdout


def test_findings_are_printed_as_json(run: Run, integers: tuple[Path, Path]) -> None:
    result = run("cross-check", *integers, "--json", "--threads", 2)
    findings = CrossFindings.from_dict(json.loads(result.stdout))
    assert (findings.batches, findings.differing) == (6, 0)


def test_a_difference_to_the_reference_is_exit_code_8_unless_it_is_allowed(
    run: Run, integers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = catalog.find_integer("QLinearMatMul")
    assert operator is not None
    kernel = operator.kernel_on
    monkeypatch.setattr(operator, "kernel_on", lambda *given: (_flipped(kernel(*given)[0]),))
    result = run("cross-check", *integers)
    assert result.exit_code == 8
    assert "elements differ, by up to 1 LSB" in result.stderr
    assert run("cross-check", *integers, "--max-lsb", 1).exit_code == 0
    assert run("cross-check", *integers, "--max-differing", 0.5).exit_code == 8
    assert run("cross-check", *integers, "--max-differing", 1).exit_code == 0


def test_nodes_without_kernel_fail_unless_they_are_allowed(
    run: Run, integers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedError("not here")

    operator = catalog.find_integer("QLinearMatMul")
    monkeypatch.setattr(operator, "kernel_on", refuse)
    result = run("cross-check", *integers)
    assert result.exit_code == 8
    assert "was not checked: node QLinearMatMul 'matmul': not here" in result.stderr
    allowed = run("cross-check", *integers, "--allow-unchecked", "--json")
    assert allowed.exit_code == 0
    assert "note: end to end was not checked: node QLinearMatMul" in allowed.stderr
    assert "note: QLinearMatMul 'matmul' was not checked" in allowed.stderr


def test_a_dynamic_model_of_weights_alone_is_compared_end_to_end(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    made = tmp_path / "half.onnx"
    written = run("quantize-dynamic", model_path, "-o", made, "--dtype", "float16")
    assert written.exit_code == 0, written.stderr
    result = run("cross-check", made, samples_path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "no node computes in integers: at most weights" in result.stdout


def test_a_float_model_does_not_look_like_success(
    run: Run, model_path: Path, integers: tuple[Path, Path]
) -> None:
    result = run("cross-check", model_path, integers[1])
    assert result.exit_code != 0
    assert "0 differ" not in result.stdout.splitlines()[-3:]


@pytest.mark.parametrize("name", ["--max-lsb", "--max-output-lsb", "--max-differing"])
def test_negative_bounds_are_wrong_usage(run: Run, integers: tuple[Path, Path], name: str) -> None:
    result = run("cross-check", *integers, name, -1)
    assert result.exit_code == 2
    assert "range" in result.stderr
