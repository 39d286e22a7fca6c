from __future__ import annotations

import pytest

from tests.cpu_seconds import PROPERTY
from tests.nightly_table import Table


def report(when: str, outcome: str, seconds: float, case: str = "c") -> pytest.TestReport:
    return pytest.TestReport(
        f"tests/test_a.py::test_b[{case}]",
        ("tests/test_a.py", 1, f"test_b[{case}]"),
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
    assert text.splitlines()[-1] == "| tests/test_a.py::test_b[c] | failed | 1 | 1.8 |"
    assert "commit " in text
    assert "1 failed, in 0 minutes and 2 CPU seconds. Night " in text


def test_cases_that_pass_share_a_row() -> None:
    table = Table()
    for case, outcome in (("c", "passed"), ("d", "failed"), ("e", "passed")):
        table.pytest_runtest_logreport(report("call", outcome, 1.0, case))
    assert table.text().splitlines()[-2:] == [
        "| tests/test_a.py::test_b | passed | 2 | 2.0 |",
        "| tests/test_a.py::test_b[d] | failed | 1 | 1.0 |",
    ]


def test_the_page_names_the_commit_of_a_second_run() -> None:
    table, later = Table(), Table()
    for case, outcome in (("c", "passed"), ("d", "failed"), ("e", "failed")):
        table.pytest_runtest_logreport(report("call", outcome, 1.0, case))
    later.pytest_runtest_logreport(report("call", "passed", 1.0, "d"))
    page = later.again(table.text())
    assert "Of those that failed, 1 ran again at commit " in page
    first, second, last = page.splitlines()[-3:]
    assert first == "| tests/test_a.py::test_b | passed | 1 | 1.0 |"
    assert second.startswith("| tests/test_a.py::test_b[d] | passed at ")
    assert last == "| tests/test_a.py::test_b[e] | failed | 1 | 1.0 |"
