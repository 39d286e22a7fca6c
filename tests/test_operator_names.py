"""Knowledge of an operator stands in its file, or in ort/facts.py: few others name one.

Counted are the operators' names as strings: in comparisons, sets and tables. Not counted is a name
that says which node to write or to run, the first words of a call (ir.node("Cast", ...)), and what
`__all__` has, which are classes of PyTorch's names.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ort.node_examples import schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent / "onnxq"
MOST = 60
"""Grow it never, shrink it often."""
HOMES = (
    "operators", "ort", "times/microbenchmarks", "qdq", "graph/passes", "graph/affine.py",
    "graph/pixels.py", "graph/types.py", "graph/folded.py", "graph/prequantized_weights.py",
    "graph/inference.py", "graph/untrusted/ranks.py",
    "reference/groupwise_matmul.py", "checking/prove.py", "checking/inventory.py",
    "graph/checks.py",
    "float16_model.py", "pytorch/importers",
    "pytorch/modules/program_file.py",  # functions of sympy that are called so, too
)  # fmt: skip
"""Folders that know operators, or write their patterns: these name what they match, or measure."""
NAMES = {name for _, name in schemas()}


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, operator's name) of each string that counts."""
    free: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            free.update(node.args)
        if isinstance(node, ast.Expr):
            free.add(node.value)
        if isinstance(node, ast.Assign) and "__all__" in map(ast.unparse, node.targets):
            free.update(ast.walk(node.value))
        if node not in free and isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno, str(node.value)


def test_few_files_but_those_that_know_operators_name_one() -> None:
    found: dict[str, list[tuple[int, str]]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        path = file.relative_to(ROOT)
        if not any(path.is_relative_to(home) for home in HOMES):
            found[str(path)] = list(named(ast.parse(file.read_text("utf-8"))))
    rows = [
        f"{len(at):3} {file}: {', '.join(f'{name} ({line})' for line, name in at)}"
        for file, at in found.items()
        if at
    ]
    assert sum(map(len, found.values())) <= MOST, "\n" + "\n".join(rows)
