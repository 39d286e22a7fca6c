from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner, Result

from onnxq.cli import main
from onnxq.core import signals
from tests.examples import images, network, quantized_matmul, save, weights

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """run("inspect", path) -> exit code, stdout, stderr; an exception that gets out is a bug."""

    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in args])
        signals.forget()  # a signal ends one command, and its process with it
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "This is a fault of onnxq" not in result.stderr
        return result

    return invoke


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return save(network(), tmp_path / "m.onnx")


@pytest.fixture
def samples_path(tmp_path: Path) -> Path:
    path = tmp_path / "x.npz"
    np.savez(path, x=images(8))
    return path


@pytest.fixture
def quantized_path(run: Run, model_path: Path, samples_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "q.onnx"
    assert run("quantize", model_path, samples_path, "-o", path).exit_code == 0
    return path


@pytest.fixture
def integers(tmp_path: Path) -> tuple[Path, Path]:
    """A quantized model with nothing in float, and samples."""
    np.savez(tmp_path / "m.npz", x=weights(0, 6, 8))
    return save(quantized_matmul(np.array(3, np.uint8)), tmp_path / "i.onnx"), tmp_path / "m.npz"


@pytest.fixture
def fast_path(run: Run, model_path: Path, samples_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "fast.onnx"
    made = run("quantize", model_path, samples_path, "-o", path, "--target", "x86-vnni")
    assert made.exit_code == 0
    return path
