"""Writes the tutorials as Jupyter notebooks, into build/notebooks or the folder that is named.

    python scripts/write_notebooks.py [--output FOLDER] [docs/tutorials/first.md ...]

Each notebook lies beside a link to the repository's models and the files that its page is given, so
that it runs where it lies: `jupyter notebook build/notebooks/first.ipynb`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

from scripts._pages.given import put
from scripts._pages.notebook import notebook
from scripts._pages.page import ROOT, Page


def tutorials() -> list[Path]:
    """Pages of the tutorials."""
    return [each for each in sorted(ROOT.glob("docs/tutorials/*.md")) if each.stem != "index"]


def write(page: Page, folder: Path) -> Path:
    """Writes the page's notebook into the folder, and what it needs beside it; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    models = folder / "models"
    if not models.exists():
        models.symlink_to(ROOT / "models")
    put(page.given, folder)
    path = folder / f"{page.path.stem}.ipynb"
    path.write_text(json.dumps(notebook(page), indent=1) + "\n", "utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, help="default: all tutorials")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "notebooks")
    args = parser.parse_args()
    for path in args.pages or tutorials():
        print(write(Page.read(path.resolve()), args.output))


if __name__ == "__main__":
    main()
