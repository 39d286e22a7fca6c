from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "kill.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def _kills(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_killed_commands_leave_whole_files_and_go_on() -> None:
    assert "4 kills" in _kills("--n", "4", "--seed", "5", "--commands", "quantize,calibrate")


@pytest.mark.nightly(nights=5)
@pytest.mark.parametrize("seed", range(1, 6))
def test_200_kills_leave_whole_files_and_go_on(seed: int) -> None:
    said = re.search(r"(\d+) kills", _kills("--n", "42", "--seed", str(seed)))
    assert said is not None
    assert int(said[1]) >= 42  # a share for each command, rounded up
