"""The site builds without a warning, and its reference leaves out no public name."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import onnxq
from scripts._pages.page import ROOT

if TYPE_CHECKING:
    from pathlib import Path

API = ROOT / "docs" / "reference" / "api"


def test_every_public_function_is_on_the_page_of_main_functions() -> None:
    text = (API / "onnxq.md").read_text("utf-8")
    listed = set(re.findall(r"auto(?:function|class):: onnxq\.(\w+)$", text, re.MULTILINE))
    modules = {path.stem.removeprefix("onnxq.") for path in API.glob("onnxq.*.md")}
    assert {*listed, *modules, "errors", "__version__"} >= set(onnxq.__all__)


@pytest.mark.parametrize("page", sorted(API.glob("onnxq.*.md")), ids=lambda page: page.stem)
def test_a_page_of_a_module_documents_all_of_it(page: Path) -> None:
    assert f"automodule:: {page.stem}\n" in page.read_text("utf-8")
    source = ROOT / page.stem.replace(".", "/")
    module = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
    assert "\n__all__ = " in module.read_text("utf-8")  # else nothing would be documented


def test_every_page_is_in_a_table_of_contents() -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    for path in pages:
        folder = path.parent.parent if path.stem == "index" else path.parent
        name = path.relative_to(folder).as_posix()
        if name != "index":
            index = (ROOT / "docs" / folder / "index.md").read_text("utf-8")
            assert re.search(rf"^{re.escape(name)}$", index, re.MULTILINE), path


@pytest.mark.nightly
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for name in ("sphinx", "furo", "myst_parser", "sphinx_click"):
        pytest.importorskip(name)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-n", "-c", "docs", "."]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()
    assert "quantize" in (tmp_path / "docs" / "reference" / "api" / "onnxq.html").read_text("utf-8")
