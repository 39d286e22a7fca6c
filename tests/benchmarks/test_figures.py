"""Pages have the figures of the results, and a figure that does not is found."""

from __future__ import annotations

import sys
from subprocess import run
from typing import TYPE_CHECKING

import pytest

from benchmarks.harness.pages import RenderError, quoting, rendered
from benchmarks.harness.results import ROOT, Results, Run
from benchmarks.harness.table import Table

if TYPE_CHECKING:
    from pathlib import Path

TIMES = Table("times", {"model": "", "float": ".1f", "int8": ".1f"})
QUOTE = '| MinMax | {{ (speed.times("int8", "a") / speed.times("float", "a")) | fixed(2) }}x |'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of one benchmark, its template, and a page that quotes them."""
    results = Results()
    results.add(Run("a machine", {}), TIMES.row("a", 79.0, 95.7))
    results.add(Run("a machine", {}), TIMES.row("b", 70.0, 90.0))
    for name in ("results", "templates", "quotes"):
        (tmp_path / name).mkdir()
    results.save(tmp_path / "results" / "speed.json")
    (tmp_path / "templates" / "speed.md.j2").write_text('# Speed\n\n{{ table("times") }}\n')
    (tmp_path / "quotes" / "page.md.j2").write_text(f"{QUOTE}\n\nof\ntwo rows\n")
    return tmp_path


def page(folder: Path, text: str) -> tuple[str, str]:
    (folder / "page.md").write_text(text)
    (found,) = quoting(folder / "quotes", folder, folder / "results")
    return found.before, found.after


def test_every_page_is_as_the_results_have_it_and_that_is_checked_without_torch() -> None:
    program = (
        "import sys; from benchmarks.harness.command import check_all; found = check_all(); "
        "sys.exit(found or 'torch' in sys.modules)"
    )
    done = run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_page_is_rendered_from_its_template(folder: Path) -> None:
    (found,) = rendered(folder / "templates", folder / "results")
    assert found.path == folder / "results" / "speed.md"
    assert found.before == ""
    assert found.after.endswith("| model | float | int8 |\n|---|---|---|\n| a | 79.0 | 95.7 |\n"
                                "| b | 70.0 | 90.0 |\n")  # fmt: skip


def test_a_changed_number_is_found_and_set_right(folder: Path) -> None:
    before, after = page(folder, "| MinMax | 1.31x |\n\nMeans of two\nrows.\n")
    assert before != after == "| MinMax | 1.21x |\n\nMeans of two\nrows.\n"
    assert page(folder, after) == (after, after)


def test_a_changed_cell_of_a_page_is_found(folder: Path) -> None:
    (found,) = rendered(folder / "templates", folder / "results")
    found.path.write_text(found.after.replace("95.7", "85.7"))
    (again,) = rendered(folder / "templates", folder / "results")
    assert "page: | a | 79.0 | 85.7 |" in next(iter(again.differences()))


def test_a_page_that_no_longer_says_what_is_quoted_is_told(folder: Path) -> None:
    with pytest.raises(RenderError, match=r"no such text:\s+of\s+two rows"):
        page(folder, "| MinMax | 1.31x |\n")


@pytest.mark.parametrize(
    ("quoted", "message"),
    [
        ('{{ speed.times("int8", "c") }} rows', "0 rows begin with c"),
        ('{{ speed.sizes("int8", "a") }} rows', "no attribute 'sizes'"),
        ('{{ size.times("int8", "a") }} rows', "'size' is undefined"),
    ],
)
def test_a_figure_that_no_result_has_is_told(folder: Path, quoted: str, message: str) -> None:
    (folder / "quotes" / "page.md.j2").write_text(quoted)
    with pytest.raises(RenderError, match=message):
        page(folder, "2 rows")
