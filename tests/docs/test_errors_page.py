"""The page on errors names every class that onnxq raises or warns with, its integer and a cure."""

from __future__ import annotations

import re
from functools import cache

import pytest

from onnxq import errors
from scripts._pages.page import ROOT


@cache
def kinds() -> dict[str, str]:
    """Classes of errors and warnings in the package -> the class that each derives from."""
    found: dict[str, str] = {}
    for path in (ROOT / "onnxq").rglob("*.py"):
        text = path.read_text("utf-8")
        found |= dict(re.findall(r"^class (\w+(?:Error|Warning))\((\w+)\):", text, re.MULTILINE))
    return {name: base for name, base in found.items() if base != "Exception"}


def section(title: str, text: str) -> str:
    return re.split(r"^## ", text.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


TEXT = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")


@pytest.mark.parametrize("kind", errors.OnnxqError.__subclasses__(), ids=lambda kind: kind.__name__)
def test_each_class_has_its_exit_code_and_a_table_of_cures(kind: type[errors.OnnxqError]) -> None:
    if kind.__module__ != "onnxq.errors":
        pytest.skip("a class that a test made")
    name = kind.__name__
    assert f"| [`{name}`](#{name.lower()}) | {kind.exit_code} |" in TEXT
    assert "| cause | cure |" in section(name, TEXT)


def test_each_class_of_the_package_has_a_cause_and_a_cure() -> None:
    for name, base in kinds().items():
        if name in vars(errors):
            said = section(name, TEXT)
        else:
            home = base if base.endswith("Error") else "Warnings"
            said = section(home, TEXT).split(f"`{name}`")[1]
        assert "ure" in said
        assert "ause" in said


def test_each_exit_code_stands_there() -> None:
    head = TEXT.split("\n## ")[0]
    for code in errors.exit_codes():
        assert code == 0 or re.search(rf"\b{code}\b", head)
