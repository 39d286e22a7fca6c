"""The README's Python runs by day, and prints what stands there; its commands are those of CI.

The night runs its console, and every other page: tests/docs/test_pages.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts._pages.given import put
from scripts._pages.page import ROOT, Page
from scripts._pages.session import run
from tests.this_machine import adds_exactly

if TYPE_CHECKING:
    from pathlib import Path

MOST_LINES = 130
OURS = "this machine is"
"""In the line that machines print whose sums saturate, where the target's do not."""
NUMBER = re.compile(r"\d+(?:\.\d+)?")

README = Page.read(ROOT / "README.md")


@adds_exactly  # its file is for x86-vnni
@pytest.mark.oracle  # needs torch for the export
@pytest.mark.usefixtures("improved_here")
def test_the_python_prints_what_stands_there(tmp_path: Path) -> None:
    without_console = re.sub(r"```console.*?```", "", README.text, flags=re.DOTALL)
    put(["resnet20.onnx"], tmp_path)
    (shown,) = run(Page(README.path, without_console), tmp_path)
    assert shown.shown
    assert shown.agrees, shown.came


@pytest.mark.oracle  # needs torch for the export
def test_the_first_example_shows_all_that_its_commands_print(tmp_path: Path) -> None:
    """Figures aside: those of x86-vnni are the night's."""
    console = "\n".join(re.findall(r"```console.*?```", README.text, flags=re.DOTALL))
    outputs = list(run(Page(README.path, console), tmp_path))
    assert len(outputs) == 2
    for each in outputs:
        came = "\n".join(line for line in each.came.splitlines() if OURS not in line)
        assert NUMBER.sub("#", came).split() == NUMBER.sub("#", each.shown).split()


def test_no_command_of_the_documentation_is_piped() -> None:
    """Commands print little enough; `...` on a page stands for what is left out."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    piped = re.compile(
        r"^(?:\$ )?(?:      )?.*onnxq [^`\n]*\| *(?:head|tail|grep|sed)\b", re.MULTILINE
    )
    assert not [
        (page.name, piped.findall(page.read_text("utf-8")))
        for page in pages
        if piped.search(page.read_text("utf-8"))
    ]


def test_it_is_short() -> None:
    assert len(README.text.splitlines()) <= MOST_LINES


def test_both_commands_are_scripts_that_can_be_run() -> None:
    for name in ("demo", "test", "check", "setup", "docs"):
        assert (ROOT / "scripts" / name).stat().st_mode & 0o111
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_ci_runs_the_command_that_passes_the_tests() -> None:
    (setup,) = [block.text for block in README.blocks() if not block.language]
    names = [line.split()[0] for line in setup.splitlines()]
    assert names == ["scripts/demo", "scripts/test"]
    ran = re.findall(
        r"^(?:\w+=\S+ )*(scripts/test)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE
    )
    assert ran == ["scripts/test"]
