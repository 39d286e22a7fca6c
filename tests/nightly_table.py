"""Outcomes of a run of pytest as a table, with the commit and the machine that it holds for."""

from __future__ import annotations

import platform
import subprocess
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cpu_seconds import function_of, seconds_of
from tests.nights import tonight

if TYPE_CHECKING:
    import pytest

PACKAGES = ("onnxruntime", "onnx", "torch", "numpy")

HEAD = """\
# What runs at night

Written by `scripts/nightly`, with all that pytest marks `nightly`. {when}, commit {commit}, on
{cpu}, {packages}.

{outcomes}, in {minutes:.0f} minutes and {seconds:,.0f} CPU seconds. Night {night}:
of tests whose cases are spread over nights, those of this one ran (`ONNXQ_NIGHT`, tests/nights.py).

| test | outcome | cases | CPU s |
|---|---|---:|---:|
"""


class Table:
    """A pytest plugin: one row per function for its cases that pass, one per other case."""

    def __init__(self) -> None:
        self._outcomes: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self._started = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0) + seconds_of(report)
        if self._outcomes.get(name, "passed") == "passed":
            self._outcomes[name] = report.outcome

    def text(self) -> str:
        """The page."""
        commit = _output("git", "describe", "--always", "--dirty")
        counts = Counter(self._outcomes.values())
        head = HEAD.format(
            outcomes=", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items())),
            minutes=(time.monotonic() - self._started) / 60,
            seconds=sum(self._seconds.values()),
            night="of all cases" if tonight() is None else tonight(),
            when=datetime.now(UTC).date(),
            commit=commit,
            cpu=cpu(),
            packages=", ".join(f"{name} {version(name)}" for name in PACKAGES),
        )
        rows: dict[tuple[str, str], list[float]] = defaultdict(list)
        for case, outcome in self._outcomes.items():
            name = function_of(case) if outcome == "passed" else case
            rows[name, outcome].append(self._seconds[case])
        return head + "".join(
            f"| {name} | {outcome} | {len(seconds)} | {sum(seconds):.1f} |\n"
            for (name, outcome), seconds in sorted(rows.items())
        )

    def again(self, page: str) -> str:
        """The page of an earlier run, with what became of the cases that had failed there."""
        commit = _output("git", "describe", "--always", "--dirty")
        for case, outcome in self._outcomes.items():
            page = page.replace(f"| {case} | failed |", f"| {case} | {outcome} at {commit} |")
        ran = page.count(f" at {commit} |")
        said = f"Of those that failed, {ran} ran again at commit {commit}.\n\n"
        return page.replace("| test | outcome |", f"{said}| test | outcome |")


def cpu() -> str:
    """The processor's own name, or its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
