"""Outcomes of a file's tests: passed, failed with a cause, or not applicable with a reason."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from scripts._torch_tests import redirected

if TYPE_CHECKING:
    from pathlib import Path

    from scripts._torch_tests.suites import Suite

LONGEST = 200
PACKAGES = {"absl": "absl-py"}
"""Modules that the files import -> packages that have them, where the names differ."""


class Kind(enum.Enum):
    """Ways in which a test ends, in the order of the table's columns."""

    PASS = "pass"
    FAIL = "fail"
    OTHER = "not applicable"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended.

    Attributes:
        name: class and function, with its parameters.
        kind: how.
        cause: in a line; empty where it passed.
    """

    name: str
    kind: Kind
    cause: str


def read(report: Path, suite: Suite) -> list[Outcome]:
    """Outcomes in pytest's XML report.

    Args:
        report: as --junitxml writes it.
        suite: the file; says which tests do not apply, and the causes that are known.
    """
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return [_outcome(case, suite) for case in cases]


def _outcome(case: ElementTree.Element, suite: Suite) -> Outcome:
    around = case.get("classname", "").split(".")[-1]
    name = f"{around}.{case.get('name', '')}" if around.startswith("Test") else case.get("name", "")
    ended = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
    if ended is None:
        return Outcome(name, Kind.PASS, "")
    if ended.get("message") == "collection failure":
        return Outcome(name, Kind.FAIL, _uncollected(ended.text or ""))
    said = _shortened(ended.get("message", ""), ended.text or "")
    if ended.tag == "skipped":
        return Outcome(name, Kind.OTHER, said)
    known = suite.cause_of(name)
    if "compiled without CUDA" in said:
        return Outcome(name, Kind.OTHER, "needs a GPU")
    absent = re.search(rf"_torch_tests\.{redirected.ROOT}\.(\w+)", f"{ended.get('message')}")
    if absent is not None and known is None:
        return Outcome(name, Kind.OTHER, f"{redirected.ABSENT} {absent[1]}")
    if known is not None and known.applies:
        return Outcome(name, Kind.FAIL, f"{known.text} ({said})")
    return Outcome(name, Kind.OTHER if known else Kind.FAIL, known.text if known else said)


def _uncollected(text: str) -> str:
    """The reason why pytest did not collect a file, and what it wants installed."""
    raised = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    said = f"none of its tests ran: {_shortened(' '.join(raised[-1:]), text)}"
    missing = re.search(r"No module named '(\w+)", said)
    return f"{said}; pip install {PACKAGES.get(missing[1], missing[1])}" if missing else said


def _shortened(message: str, text: str) -> str:
    """The message in one line, without addresses, which differ from run to run."""
    line = " ".join(message.split()) or " ".join(text.split())
    line = re.sub(r"0x[0-9a-f]+", "0x...", line)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
