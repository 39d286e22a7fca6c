"""Core tests as on Windows and macOS: without Linux's files and modules, from such a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    *("tests/core", "tests/targets", "tests/observers", "tests/samples", "tests/qdq", "tests/jobs"),
    *("tests/costs", "tests/test_catalog.py", "tests/test_dtypes.py", "tests/test_affine.py"),
    "tests/test_qparams.py",
)
TIME_LIMIT_S = 1800

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone as git for Windows makes it: lines end in CRLF, links are text files."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone, or there is no git")
    path = tmp_path_factory.mktemp("windows") / "clone"
    options = ["-c", "core.autocrlf=true", "-c", "core.symlinks=false"]
    subprocess.run(["git", *options, "clone", "--quiet", str(ROOT), str(path)], check=True)
    return path


def test_the_clone_is_as_windows_has_it(clone: Path) -> None:
    assert (clone / "onnxq" / "operators").is_file()
    assert b"\r\n" in (clone / "onnxq" / "__init__.py").read_bytes()


def test_core_tests_pass_without_fcntl_resource_and_proc(clone: Path) -> None:
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.hidden_linux"]
    chosen = ["-m", "not slow and not oracle and not nightly", *CORE]
    done = subprocess.run(
        [sys.executable, *words, *chosen],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone)},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
