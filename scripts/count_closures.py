"""Prints how many files of operators/ one opens to understand an operator, most first.

The closure of a file's imports inside the folder, itself included; what an operator shares with
all others, the contract in onnxq/operator, is not counted.
"""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "operators"
PACKAGE = "onnxq.operators"
SHOWN = 10


def imported(file: Path) -> set[str]:
    """Names of the files of the folder that this one imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module == PACKAGE:
            found |= {alias.name for alias in node.names}
        elif node.module.startswith(f"{PACKAGE}."):
            found.add(node.module.removeprefix(f"{PACKAGE}."))
    return found


def closures(folder: Path = FOLDER) -> dict[str, frozenset[str]]:
    """Name of an operator's file -> names of the files that it is read with, its own among them."""
    direct = {file.stem: imported(file) for file in sorted(folder.glob("*.py"))}
    found = {}
    for name in direct:
        if name.startswith("_"):
            continue
        seen, open_ = {name}, [name]
        while open_:
            new = direct[open_.pop()] - seen
            seen |= new
            open_ += new
        found[name] = frozenset(seen)
    return found


def main() -> None:
    sizes = {name: len(files) for name, files in closures().items()}
    for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        print(f"{size:6} {name}")
    print(f"{'...':>6} and {max(0, len(sizes) - SHOWN)} more")
    print(f"{sum(sizes.values()) / len(sizes):6.2f} on average")


if __name__ == "__main__":
    main()
