"""Outcomes of a run of pytest as a table, with the commit and the machine that it holds for."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cpu_seconds import seconds_of

if TYPE_CHECKING:
    import pytest

PACKAGES = ("onnxruntime", "onnx", "torch", "numpy")

HEAD = """\
# What runs at night

Written by `scripts/nightly`, with all that pytest marks `nightly`. {when}, commit {commit}, on
{cpu}, {packages}.

| test | outcome | CPU s |
|---|---|---:|
"""


class Table:
    """A pytest plugin: one row per test."""

    def __init__(self) -> None:
        self._outcomes: dict[str, str] = {}
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0) + seconds_of(report)
        if self._outcomes.get(name, "passed") == "passed":
            self._outcomes[name] = report.outcome

    def text(self) -> str:
        """The page."""
        commit = _output("git", "describe", "--always", "--dirty")
        head = HEAD.format(
            when=datetime.now(UTC).date(),
            commit=commit,
            cpu=cpu(),
            packages=", ".join(f"{name} {version(name)}" for name in PACKAGES),
        )
        rows = sorted(self._outcomes.items())
        return head + "".join(
            f"| {name} | {outcome} | {self._seconds[name]:.1f} |\n" for name, outcome in rows
        )


def cpu() -> str:
    """The processor's own name, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
