"""The workflow of GitHub, and its core tests as on Windows and macOS: without Linux's modules."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"
TIME_LIMIT_S = 1800


def runs(job: str) -> list[str]:
    """Commands of a job of the workflow."""
    steps = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"][job]["steps"]
    return [step["run"] for step in steps if "run" in step]


def core() -> list[str]:
    """Arguments of pytest in the job for systems without torch."""
    (command,) = (run for run in runs("core") if "-m pytest" in run)
    words = shlex.split(command)
    return words[words.index("pytest") + 1 :]


def test_scripts_and_tests_of_the_workflow_exist() -> None:
    for job in ("linux", "core", "wheels"):
        for word in shlex.split(" ".join(runs(job)), comments=True):
            path = word.removeprefix("--ignore=")
            if path.startswith(("scripts/", "tests/")):
                assert (ROOT / path).exists(), word


@pytest.mark.parametrize("job", ["linux", "core", "wheels"])
def test_an_option_of_a_plugin_has_its_plugin(job: str) -> None:
    """-n is pytest-xdist's; `scripts/setup` installs it, the core job does not."""
    words = shlex.split(" ".join(runs(job)))
    assert "-n" not in words or any("xdist" in word for word in words)


def test_core_tests_run_on_the_onnxruntime_whose_facts_they_pin() -> None:
    pinned = re.search(
        r'^ort="(\S+)"', (ROOT / "scripts" / "setup").read_text("utf-8"), re.MULTILINE
    )
    assert pinned is not None
    assert pinned[1] in shlex.split(" ".join(runs("core")))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone as git for Windows makes it: lines end in CRLF, links are text files."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone, or there is no git")
    path = tmp_path_factory.mktemp("windows") / "clone"
    options = ["-c", "core.autocrlf=true", "-c", "core.symlinks=false"]
    subprocess.run(["git", *options, "clone", "--quiet", str(ROOT), str(path)], check=True)
    return path


@pytest.mark.nightly
def test_the_clone_is_as_windows_has_it(clone: Path) -> None:
    assert (clone / "onnxq" / "operators").is_file()
    assert b"\r\n" in (clone / "onnxq" / "__init__.py").read_bytes()


@pytest.mark.nightly
def test_core_tests_pass_without_fcntl_resource_proc_and_torch(clone: Path) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    words += ["-p", "tests.hidden_linux", *core()]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone)},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
