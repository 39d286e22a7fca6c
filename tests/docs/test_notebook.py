"""Tutorials as notebooks: all of a page is in its cells, and the night runs them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from scripts._pages.notebook import notebook
from scripts._pages.page import ROOT, Page
from scripts.write_notebooks import tutorials, write
from tests.docs.test_page import TEXT

PAGES = [Page.read(path) for path in tutorials()]


def test_cells_are_text_code_files_and_commands_in_order() -> None:
    cells = notebook(Page(Path("page.md"), TEXT))["cells"]
    assert [(cell["cell_type"], cell["source"]) for cell in cells] == [
        ("markdown", "# Title"),
        ("code", "print(1 + 1)"),
        ("code", "%%writefile here.yaml\n# here.yaml\nglobal: null"),
        ("code", "!cat here.yaml\n!false"),
        ("markdown", "```text\nread only\n```"),
    ]


@pytest.mark.parametrize("page", PAGES, ids=[page.path.stem for page in PAGES])
def test_no_output_and_no_fence_that_runs_is_left_in_the_text(page: Page) -> None:
    cells = notebook(page)["cells"]
    text = "".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    assert not {"```python", "```output", "```console"} & set(text.split())
    assert any(cell["cell_type"] == "code" for cell in cells)


@pytest.mark.nightly(nights=6)  # the text of its cells runs as a page, too
@pytest.mark.oracle
@pytest.mark.filterwarnings("default")  # of Jupyter's packages
@pytest.mark.parametrize("page", PAGES, ids=[page.path.stem for page in PAGES])
def test_a_notebook_runs(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for name in page.needs:
        pytest.importorskip(name)
    folder = Path(sys.executable).parent  # has the command onnxq
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    path = write(page, tmp_path)
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, resources={"metadata": {"path": str(tmp_path)}}).execute()
    ran = [cell for cell in json.loads(nbformat.writes(book))["cells"] if "outputs" in cell]
    texts = ["".join(out.get("text", "")) for cell in ran for out in cell["outputs"]]
    assert texts
    assert not [text for text in texts if "Traceback" in text or "command not found" in text]
