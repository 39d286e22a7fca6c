"""Fails when a Markdown file links to a file or heading of this repository that is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_INTEGER = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings of a Markdown text."""
    titles = _HEADING.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(file: Path) -> Iterator[str]:
    """Targets of the file's links that do not exist; addresses of other sites are not looked at."""
    for target in _LINK.findall(_INTEGER.sub("", file.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = file.parent / path if path else file
        if not linked.exists() or (anchor and anchor not in anchors(linked.read_text("utf-8"))):
            yield target


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.split()]
    dead = [f"{file.relative_to(ROOT)}: {link}" for file in files for link in dead_links(file)]
    print("\n".join(dead) or f"{len(files)} Markdown files, no dead link")
    return bool(dead)


if __name__ == "__main__":
    sys.exit(main())
