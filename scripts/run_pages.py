"""Runs the pages of the documentation, Python and commands, and compares what they print.

    python scripts/run_pages.py [--write] [docs/how-to/exclude.md ...]

Without names it runs README.md and every page of docs/. `--write` puts what was printed under the
blocks, where it is not what stands there; `...` stays where lines around it have the same words.
scripts/_pages/page.py says how a page is written.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

from scripts._pages.comparison import elided
from scripts._pages.given import put
from scripts._pages.page import ROOT, Page
from scripts._pages.session import Shown, run

FAULT = "This is a fault of onnxq"
"""Words of an error that no page is to show."""


def pages() -> list[Page]:
    """README.md and the pages of docs/, by their paths."""
    return [Page.read(path) for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))]


def wrong(page: Page) -> list[Shown]:
    """Outputs of the page that are not what stands there."""
    if not any(True for _ in page.steps()):
        return []
    with TemporaryDirectory(prefix="onnxq-page-") as name:
        folder = Path(name)
        put(page.given, folder)
        return [shown for shown in run(page, folder) if not shown.agrees]


def written(text: str, outputs: list[Shown]) -> str:
    """The page's text with what came in place of what was shown."""
    for each in sorted(outputs, key=lambda shown: -shown.start):
        came = elided(each.shown, each.came).strip("\n")
        came = f"{came}\n" if came else ""
        if each.is_fenced and not each.shown:  # behind the fence that ends the code
            came = f"```\n```output\n{came}"
        text = text[: each.start] + came + text[each.start + len(each.shown) :]
    return text


def faults(outputs: list[Shown]) -> list[Shown]:
    """Outputs that tell of a fault of onnxq: these are never written into a page."""
    return [each for each in outputs if FAULT in each.came]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, help="default: all")
    parser.add_argument(
        "--write", action="store_true", help="write what was printed into the pages"
    )
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    chosen = [Page.read(path.resolve()) for path in args.pages] or pages()
    is_wrong = is_faulty = False
    for page in chosen:
        outputs = wrong(page)
        is_wrong |= bool(outputs)
        print(f"{page.name}: {len(outputs)} outputs differ", flush=True)
        if args.write and not faults(outputs):
            page.path.write_text(written(page.text, outputs), "utf-8")
            continue
        for each in outputs:
            print(f"--- shown\n{each.shown}--- came\n{each.came}", flush=True)
        is_faulty |= bool(faults(outputs))
    return int(is_faulty or (is_wrong and not args.write))


if __name__ == "__main__":
    sys.exit(main())
