"""Execution providers other than the CPU's: which there are, and what each of them gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import onnxq
from onnxq.cli import main
from onnxq.errors import QConfigError
from onnxq.ort import runtime
from tests.examples import as_ir, images, network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OTHER = "AzureExecutionProvider"
"""Every wheel for the CPU has it; it takes no node of these models."""
CALLS: dict[str, Callable[[str], object]] = {
    "bench": lambda name: onnxq.bench(network(), network(), runs=1, provider=name),
    "verify": lambda name: onnxq.verify(network(), network(), {"x": images(2)}, provider=name),
    "calibrate": lambda name: onnxq.calibrate(
        onnxq.prepare(network()), {"x": images(2)}, provider=name
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_provider_is_refused_with_those_that_there_are(call: str) -> None:
    with pytest.raises(QConfigError, match=r"CPUExecutionProvider\. Did you mean 'CPUExecu"):
        CALLS[call]("CPUExecutionProvder")


def test_nodes_are_counted_by_the_provider_that_gets_them() -> None:
    model = as_ir(network())
    assert runtime.placement(model, OTHER) == {runtime.CPU: len(model.graph)}


def test_findings_say_what_ran_where_and_compare_outputs_alone() -> None:
    made = onnxq.quantize(network(), {"x": images(16)}, check=onnxq.Check.NONE)
    found = onnxq.verify(network(), made, {"x": images(4)}, provider=OTHER)
    assert found.execution.providers.keys() == {runtime.CPU}
    assert not found.tensors
    assert found.outputs
    here = onnxq.verify(network(), made, {"x": images(4)})
    assert here.tensors
    assert not here.execution.providers
    assert here.outputs[0].sqnr_db == pytest.approx(found.outputs[0].sqnr_db, abs=0.1)


def test_statistics_are_those_of_the_provider() -> None:
    prepared = onnxq.prepare(network())
    there = onnxq.calibrate(prepared, {"x": images(4)}, provider=OTHER)
    assert there.samples.count == 4


def test_the_command_line_has_the_option(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    np.savez(tmp_path / "s.npz", x=images(4))
    model, samples = str(tmp_path / "m.onnx"), str(tmp_path / "s.npz")
    words = ["bench", model, model, samples, "--runs", "2", "--provider", OTHER]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "of CPUExecutionProvider" in result.stdout
    out = str(tmp_path / "stats")
    words = ["calibrate", model, samples, "-o", out, "--provider", "CUDAExecutionProvider"]
    assert CliRunner().invoke(main, words).exit_code == QConfigError.exit_code
