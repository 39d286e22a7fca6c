from __future__ import annotations

from typing import TYPE_CHECKING

from tests.nights import VARIABLE, left_for_other_nights, tonight

if TYPE_CHECKING:
    import pytest

CASES = {f"a.py::test_b[{i}]": 3 for i in range(7)} | {"a.py::test_c[x]": 5}


def test_so_many_nights_run_every_case_and_each_night_a_part() -> None:
    ran = [CASES.keys() - left_for_other_nights(CASES, night) for night in range(100, 103)]
    assert set().union(*ran) == set(CASES)
    assert sum("test_b" in name for part in ran for name in part) == 7


def test_one_case_of_each_function_runs_at_least() -> None:
    assert "a.py::test_c[x]" not in left_for_other_nights(CASES, 4)


def test_without_a_number_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert tonight() is None
    assert left_for_other_nights(CASES, tonight()) == set()


def test_the_number_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "20785")
    assert tonight() == 20785
