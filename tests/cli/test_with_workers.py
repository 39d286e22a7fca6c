from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.static.statistics import Statistics
from tests.examples import images, network, save

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

COUNT = 200
WAIT_S = 120.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with net.onnx and x.npy, images of various brightness."""
    save(network(), tmp_path / "net.onnx")
    scales = np.linspace(0.1, 4, COUNT, dtype=np.float32).reshape(-1, 1, 1, 1)
    np.save(tmp_path / "x.npy", images(COUNT) * scales)
    return tmp_path


def test_two_jobs_write_the_files_that_one_writes(run: Run, folder: Path) -> None:
    for jobs in ("1", "2"):
        result = run(
            "quantize",
            folder / "net.onnx",
            folder / "x.npy",
            "-o",
            folder / f"{jobs}.onnx",
            "--save-stats",
            folder / f"{jobs}.stats",
            "--jobs",
            jobs,
        )
        assert result.exit_code == 0, result.stderr
    for suffix in (".onnx", ".stats"):
        assert (folder / f"1{suffix}").read_bytes() == (folder / f"2{suffix}").read_bytes()


@pytest.mark.nightly
def test_a_killed_calibration_goes_on_to_the_same_file(run: Run, folder: Path) -> None:
    model, samples, kept = folder / "net.onnx", folder / "x.npy", folder / "kept.stats"
    run("calibrate", model, samples, "-o", folder / "whole.stats")
    command = [sys.executable, "-m", "onnxq", "calibrate", str(model), str(samples)]
    command += ["-o", str(folder / "parts.stats"), "--checkpoint", str(kept)]
    command += ["--checkpoint-every", "0", "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as driver:
        end = time.monotonic() + WAIT_S
        while not kept.exists():
            assert driver.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < end
            time.sleep(0.002)
        driver.kill()
    assert 0 < len(Statistics.load(kept).batches) < COUNT
    assert not (folder / "parts.stats").exists()
    again = subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert again.returncode == 0
    assert (folder / "parts.stats").read_bytes() == (folder / "whole.stats").read_bytes()
    assert not kept.exists()


@pytest.mark.parametrize("command", ["verify", "cross-check", "predict"])
def test_two_jobs_find_what_one_finds(command: str, run: Run, folder: Path) -> None:
    few = folder / "few.npy"
    np.save(few, images(6))
    run("quantize", folder / "net.onnx", few, "-o", folder / "int8.onnx", "--all-integers")
    paths = [folder / "int8.onnx", few]
    paths = paths if command != "verify" else [folder / "net.onnx", *paths]
    one, two = (run(command, *paths, "--json", "--jobs", jobs) for jobs in (1, 2))
    assert one.exit_code == two.exit_code == 0, two.stderr
    assert one.stdout == two.stdout
