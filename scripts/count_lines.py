"""Prints the lines of code of every module, largest first, so that growth is seen in review.

A line counts when it holds code: blank lines, comments and docstrings do not.
"""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = ROOT / "onnxq" / "operators"
FOLDERS = ("onnxq", "operators", "models", "scripts", "benchmarks", "tests")
SHOWN = 25

_NO_INTEGER = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(file: Path) -> int:
    """Number of lines that hold code."""
    with tokenize.open(file) as stream:
        tokens = [t for t in tokenize.generate_tokens(stream.readline) if t.type not in _NO_INTEGER]
    lines = {n for token in tokens for n in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


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
