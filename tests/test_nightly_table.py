from __future__ import annotations

import pytest

from tests.cpu_seconds import PROPERTY
from tests.nightly_table import Table


def report(when: str, outcome: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(
        "tests/test_a.py::test_b[c]",
        ("tests/test_a.py", 1, "test_b[c]"),
        {},
        outcome,  # type: ignore[arg-type]
        None,
        when,  # type: ignore[arg-type]
        user_properties=[(PROPERTY, seconds)],
    )


def test_a_row_has_the_worst_outcome_and_the_seconds_of_all_phases() -> None:
    table = Table()
    for one in (
        report("setup", "passed", 0.5),
        report("call", "failed", 1.25),
        report("teardown", "passed", 0.0),
    ):
        table.pytest_runtest_logreport(one)
    text = table.text()
    assert text.splitlines()[-1] == "| tests/test_a.py::test_b[c] | failed | 1.8 |"
    assert "commit " in text
