"""Prints the lines of code of every module, largest first, so that growth is seen in review.

A line counts when it holds code: blank lines, comments and docstrings do not, nor do blank lines
in a text.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
LINK = ROOT / "onnxq" / "operators"
FOLDERS = ("onnxq", "operators", "models", "scripts", "benchmarks", "tests")
SHOWN = 25


def code_lines(file: Path) -> int:
    """Number of lines that hold code."""
    text = file.read_text(encoding="utf-8")
    lines = {n for n, line in enumerate(text.splitlines(), 1) if line.strip()[:1] not in ("", "#")}
    for node in _statements(ast.parse(text).body):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _statements(block: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Statements of a block and of the blocks inside it; no expressions."""
    for node in block:
        yield node
        for field in ("body", "handlers", "cases", "orelse", "finalbody"):
            inside = getattr(node, field, ())
            if isinstance(inside, list):
                yield from _statements(inside)


def main() -> None:
    counts = {
        file.relative_to(ROOT): code_lines(file)
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        if not file.is_relative_to(LINK)  # counted as operators/
    }
    for file, lines in sorted(counts.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"{lines:6} {file}")
    print(f"{'...':>6} and {max(0, len(counts) - SHOWN)} smaller modules")
    for folder in FOLDERS:
        files = [n for file, n in counts.items() if file.parts[0] == folder]
        print(f"{sum(files):6} {folder}/ ({len(files)} files)")


if __name__ == "__main__":
    main()
