from __future__ import annotations

from pathlib import Path

from tests import cpu_seconds

ROOT = Path(__file__).resolve().parent.parent


def test_every_line_names_a_test_that_is_there() -> None:
    gone = []
    for name in cpu_seconds.read():
        file, *_, function = name.split("::")  # a class may stand between them
        path = ROOT / file
        if not (path.exists() and f"def {function}(" in path.read_text(encoding="utf-8")):
            gone.append(name)
    assert not gone, "run scripts/test --write-cpu-seconds, or rename them in the file"


def test_cases_of_a_function_count_together() -> None:
    assert cpu_seconds.function_of("tests/test_a.py::test_b[c::d[0]]") == "tests/test_a.py::test_b"


def test_functions_of_a_file_count_together() -> None:
    seconds = {"tests/a.py::test_b": 1.0, "tests/a.py::test_c": 0.5, "tests/d.py::test_b": 2.0}
    assert cpu_seconds.by_file(seconds) == {"tests/a.py": 1.5, "tests/d.py": 2.0}


def test_a_share_of_the_cases_of_a_dear_function_stays_by_day_and_one_of_each() -> None:
    cases = [f"a.py::test_b[{i}]" for i in range(40)]
    others = [f"a.py::test_c[{i}]" for i in range(3)] + ["a.py::test_d"]
    seconds = {"a.py::test_b": cpu_seconds.SHARE_S * 4, "a.py::test_c": 1.5}
    left = cpu_seconds.left_for_the_night([*cases, *others], seconds)
    assert [sum(name in left for name in part) for part in (cases, others)] == [30, 2]
    assert left == cpu_seconds.left_for_the_night([*others, *cases[::-1]], seconds)


def test_a_long_case_waits_for_the_night_unless_of_the_main_job() -> None:
    names = ["tests/a.py::test_b", "tests/test_readme.py::test_c", "tests/a.py::test_d"]
    seconds = {names[0]: 1.5, names[1]: 1.5, names[2]: 0.5}
    assert cpu_seconds.left_for_the_night(names, seconds) == {names[0]}
