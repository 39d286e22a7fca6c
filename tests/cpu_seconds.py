"""CPU seconds of tests: measured as they run, kept in a file, and what follows from them.

A test function that costs more than SLOW_S in all its cases together is marked `slow`; of one that
costs more than SHARE_S, a share of the cases runs by day. The file is written by
`scripts/test --write-cpu-seconds`, which runs all cases but those that are marked nightly.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

FILE = Path(__file__).parent / "cpu_seconds.txt"
SLOW_S = 0.5
"""The rest takes two cores about a minute."""

SHARE_S = 0.1
"""CPU seconds that the cases of one function together may cost by day; the night runs all."""

LONG_S = 0.6
"""CPU seconds of one case that waits for the night: a hundred of them take a minute and more."""

ALWAYS = ("tests/test_main_job.py", "tests/test_readme.py")
"""Files of the main job, all of whose functions have a case by day."""

PROPERTY = "cpu_s"


def spent() -> float:
    """CPU seconds of this process and of those that it waited for."""
    times = os.times()  # on Windows without children's
    return time.process_time() + times.children_user + times.children_system


def function_of(nodeid: str) -> str:
    """The test without its case: tests/a.py::test_b[c] -> tests/a.py::test_b."""
    return nodeid.partition("[")[0]


def seconds_of(report: pytest.TestReport) -> float:
    """CPU seconds that a meter added to a report."""
    return sum(float(str(value)) for name, value in report.user_properties if name == PROPERTY)


def read() -> dict[str, float]:
    """Seconds by function, of those that are worth a line."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, name in (line.split() for line in lines)}


def by_file(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds of all functions of a file together."""
    total: dict[str, float] = defaultdict(float)
    for name, cost in seconds.items():
        total[name.partition("::")[0]] += cost
    return total


def left_for_the_night(nodeids: Sequence[str], seconds: Mapping[str, float]) -> set[str]:
    """Cases that are left out where their function costs more than SHARE_S; one of each stays.

    None stays where one alone costs more than LONG_S. They are drawn by the checksum of their name:
    always the same ones, of all parameters some.
    """
    cases: dict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        cases[function_of(nodeid)].append(nodeid)
    left: set[str] = set()
    for function, found in cases.items():
        one = seconds.get(function, 0.0) / len(found)
        if one > LONG_S and not function.startswith(ALWAYS):
            left.update(found)
            continue
        share = min(1.0, SHARE_S / seconds.get(function, SHARE_S))
        drawn = sorted(found, key=lambda nodeid: zlib.crc32(nodeid.encode()))
        left.update(drawn[max(1, math.ceil(share * len(found))) :])
    return left


def write(seconds: Mapping[str, float]) -> None:
    """Replaces the file; functions that cost no more than SHARE_S have no line."""
    rows = sorted((name, s) for name, s in seconds.items() if round(s, 1) > SHARE_S)
    FILE.write_text("".join(f"{s:6.1f} {name}\n" for name, s in rows), encoding="utf-8")


class Meter:
    """A pytest plugin: adds its CPU seconds to each report, and up those of all workers."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = spent()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._last = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = spent()
        report.user_properties.append((PROPERTY, now - self._last))
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[function_of(report.nodeid)] += seconds_of(report)
