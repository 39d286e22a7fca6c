"""A process that is killed between two layers comes to the same file when it is begun again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.saving import save
from scripts._decoder import Sizes, decoder, tokens

if TYPE_CHECKING:
    from pathlib import Path

SIZES = Sizes(vocabulary=512, width=256, hidden=768, depth=2, heads=4)
POLL_S = 0.005


@pytest.mark.nightly  # ten processes, each of which imports everything
def test_a_killed_command_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    save(decoder(SIZES), tmp_path / "model.onnx")
    samples = tmp_path / "samples"
    samples.mkdir()
    for number, batch in enumerate(tokens(SIZES, 4, 32)):
        np.savez(samples / f"{number}.npz", **batch)  # type: ignore[arg-type]  # numpy's allow_pickle

    def command(name: str) -> list[str]:
        files = [str(tmp_path / "model.onnx"), str(samples), "-o", str(tmp_path / f"{name}.onnx")]
        journal = ["--journal", str(tmp_path / f"{name}.integers"), "--no-verdict"]
        return [sys.executable, "-m", "onnxq", "quantize-weights", *files, *journal]

    subprocess.run(command("whole"), check=True, capture_output=True)
    journal, killed = tmp_path / "again.integers", 0
    whole = (tmp_path / "whole.integers").read_bytes()
    for share in (0.1, 0.4, 0.8):
        with subprocess.Popen(command("again"), stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if journal.exists() and journal.stat().st_size >= share * len(whole):
                    process.kill()
                    break
                time.sleep(POLL_S)
            killed += process.wait() == -signal.SIGKILL
        assert not (tmp_path / "again.onnx").exists()
    assert killed == 3
    subprocess.run(command("again"), check=True, capture_output=True)
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()
    assert journal.read_bytes() == whole
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        "model.onnx",
        "samples",
        *(f"{name}.{end}" for name in ("whole", "again") for end in ("onnx", "integers")),
    }
