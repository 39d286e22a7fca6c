"""Fails where a docstring's first sentence needs its neighbours to be understood.

A sentence that begins with What, As, Of, Those, That, These, None of, It, Them, They, Its,
Likewise, The inverse, or The same without a noun has its subject elsewhere: in the name above it,
or in the docstring before. `help()`, a list of functions and a search show first sentences alone.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("onnxq", "operators", "models", "scripts", "benchmarks", "examples", "tests")

_WORDS = (
    r"(?:(?:What|As|Of|Those|That|These|None of|It|Them|They|Its|Likewise|The inverse"
    r"|The same for)\b|The same,)"
)
_SUBJECTLESS = re.compile(_WORDS)
_IN_A_STRING = re.compile(r"[\"'](?:\\\n|\s)*" + _WORDS)  # files without it are not parsed
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings of a module, its classes and functions, and those behind assignments."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED):
            continue
        for i, statement in enumerate(node.body):
            if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
                continue
            behind = node.body[i - 1] if i else None
            is_first = behind is None or isinstance(behind, ast.Assign | ast.AnnAssign)
            if is_first and isinstance(statement.value.value, str):
                yield statement.value


def subjectless(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of a Python file that begin without a subject."""
    if not _IN_A_STRING.search(text):
        return
    for node in docstrings(ast.parse(text)):
        first = str(node.value).strip().partition("\n")[0]
        if _SUBJECTLESS.match(first):
            yield node.lineno, first


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", *(f"{folder}/*.py" for folder in FOLDERS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = listed.stdout.split()
    found = [
        f"{name}:{line}: {first}"
        for name in files
        for line, first in subjectless((ROOT / name).read_text("utf-8"))
    ]
    print("\n".join(found) or f"{len(files)} files, every first sentence stands alone")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
