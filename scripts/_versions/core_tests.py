"""Core tests: those that need no torch, and of these a part that a seed draws.

    python -m pytest -p scripts._versions.core_tests --core-part 8 --core-seed 1 FILES

As a pytest plugin, it leaves the tests out whose names the seed does not draw: one of `--core-part`
in each of them stays.
"""

from __future__ import annotations

import ast
import functools
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ABSENT = frozenset(
    ["dask", "distributed", "mypy", "ruff", "selenium", "torch", "torchao", "transformers"]
)
"""Packages that the environments of the matrix do not have."""
OWN = frozenset(["benchmarks", "models", "scripts", "tests"])
"""Folders whose modules are looked into; of onnxq, `onnxq.pytorch` alone needs torch."""


def core_files() -> list[str]:
    """Test files that import, themselves or through others here, no absent package."""
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if not needs_absent(file)]


@functools.cache
def needs_absent(file: Path) -> bool:
    """Whether a file, or one of ours that it imports, names an absent package."""
    for name in imports(file):
        top = name.partition(".")[0]
        if top in ABSENT or name.startswith("onnxq.pytorch"):
            return True
        if top in OWN and any(needs_absent(f) for f in files_of(name) if f != file):
            return True
    return False


def imports(file: Path) -> Iterator[str]:
    """Modules that a file imports when it is imported, and what it takes from each."""
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_of(name: str) -> list[Path]:
    """The file of a module of ours; none where the name is no module."""
    base = ROOT.joinpath(*name.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return [file for file in candidates if file.is_file()]


def pytest_addoption(parser: pytest.Parser) -> None:
    """--core-part, --core-seed."""
    parser.addoption("--core-part", type=int, default=1, help="one test of so many is run")
    parser.addoption("--core-seed", type=int, default=0, help="says which ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests that the seed draws."""
    part, seed = config.getoption("--core-part"), config.getoption("--core-seed")
    kept = [item for item in items if not zlib.crc32(f"{seed} {item.nodeid}".encode()) % part]
    drawn = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
    items[:] = kept
