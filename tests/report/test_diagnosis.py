"""A diagnosis names what is missing or too old, and the command that installs it."""

from __future__ import annotations

import io

import pytest

from onnxq.errors import UnsupportedError
from onnxq.report.console import open_console
from onnxq.report.diagnosis import MODULES, Diagnosis, diagnose, fits, print_diagnosis


def wanting(monkeypatch: pytest.MonkeyPatch, *requirements: str) -> Diagnosis:
    monkeypatch.setattr("importlib.metadata.requires", lambda _name: list(requirements))
    return diagnose()


def printed(found: Diagnosis) -> str:
    out = io.StringIO()
    print_diagnosis(open_console(out), found)
    return out.getvalue()


def test_what_every_command_needs_is_here() -> None:
    found = diagnose()
    found.check()
    assert {p.name for p in found.packages if not p.extra} >= {"numpy", "onnx", "onnxruntime"}


def test_a_missing_extra_is_named_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wanting(monkeypatch, "numpy>=1", "frob>=2; extra == 'torch'", "ruff; extra == 'dev'")
    found.check()
    text = printed(found)
    assert "export, training, importers: pip install 'frob>=2'" in text
    assert "ruff" not in text


def test_a_package_that_is_too_old_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wanting(monkeypatch, "numpy>=1000")
    with pytest.raises(UnsupportedError, match=r"Run: pip install 'numpy>=1000'"):
        found.check()
    assert "! numpy" in printed(found)


def test_a_package_that_does_not_import_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES, "numpy", "no_such_module")
    (package,) = wanting(monkeypatch, "numpy>=1").packages
    assert package.problem == "does not import: No module named 'no_such_module'"


@pytest.mark.parametrize(
    ("version", "bounds", "fit"),
    [
        ("1.0.1", "<2,>=1.0", True),
        ("2.0", "<2,>=1.0", False),
        ("2.13.0+cpu", ">=2.13", True),
        ("1.9", ">=1.10", False),
        ("1.9", "", True),
    ],
)
def test_bounds_compare_numbers(version: str, bounds: str, fit: bool) -> None:
    assert fits(version, bounds) is fit
