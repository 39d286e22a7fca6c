"""A page of Markdown: the blocks that run, the output that stands under them, the files it needs.

    ```python          runs, all blocks of a page in one namespace, top to bottom
    ```output          right behind it: what it prints
    ```console         lines behind `$ ` run in bash, the others are what they print
    ```python, ```yaml with `# NAME.py` in the first line: a file of that name
    <!-- given: resnet20.onnx -->     files that are there before the page begins
    <!-- needs: nncf -->              modules that the development environment does not have

`...` in output stands for anything. Decimals may be a little off; in a block whose fence says
`clock` (```console clock) they may be anything. Blocks of other languages are only read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```(\S*)( clock)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!-- (given|needs): (.*?) -->")
_FILE = re.compile(r"# (\S+\.(?:py|yaml|yml))\n")
_PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the language that its fence names, its text, and where that text begins."""

    language: str
    text: str
    start: int
    """Index of its first character in the page."""
    is_timed: bool
    """Decimals in its output are those of a clock."""

    @property
    def file(self) -> str | None:
        """Name of the file that the block is; None: it is no file."""
        found = _FILE.match(self.text)
        return found[1] if found and self.language in {"python", "yaml"} else None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, and the text that stands under it."""

    line: str
    """All its lines, joined where a backslash says so."""
    output: str
    start: int
    """Index of the output's first character in the page."""


@dataclass(frozen=True, slots=True)
class PythonBlock:
    """A block of Python, and the output that stands under it."""

    block: Block
    output: Block | None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the documentation."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Page:
        """The page in a file."""
        return cls(path, path.read_text("utf-8"))

    @property
    def name(self) -> str:
        """Path in the repository: "docs/how-to/exclude.md"."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def given(self) -> list[str]:
        """Files that are there before the page begins."""
        return self._listed("given")

    @property
    def needs(self) -> list[str]:
        """Modules that have to be installed for the page alone."""
        return self._listed("needs")

    def _listed(self, word: str) -> list[str]:
        found = [names for kind, names in _COMMENT.findall(self.text) if kind == word]
        return [name.strip() for names in found for name in names.split(",")]

    def blocks(self) -> list[Block]:
        """All fenced blocks, in the page's order."""
        return [
            Block(found[1], found[3], found.start(3), bool(found[2]))
            for found in _FENCE.finditer(self.text)
        ]

    def steps(self) -> Iterator[PythonBlock | Block]:
        """Blocks that do something, in order: Python with its output, consoles, files."""
        blocks = self.blocks()
        for block, behind in zip_longest(blocks, blocks[1:]):
            if block.file is not None or block.language == "console":
                yield block
            elif block.language == "python":
                is_output = behind is not None and behind.language == "output"
                yield PythonBlock(block, behind if is_output else None)


def commands(block: Block) -> list[Command]:
    """The commands of a console block, each with the output under it."""
    found: list[Command] = []
    at = block.start
    lines = block.text.splitlines(keepends=True)
    while lines:
        words, is_open = [], lines[0].startswith(_PROMPT)
        if not is_open:
            raise ValueError(f"a console block begins with '$ ', not with {lines[0]!r}")
        while is_open:
            line = lines.pop(0)
            at += len(line)
            text = line.removeprefix(_PROMPT).rstrip("\n")
            is_open = text.endswith("\\") and bool(lines)
            words.append(text.removesuffix("\\").strip() if is_open else text.strip())
        start = at
        while lines and not lines[0].startswith(_PROMPT):
            at += len(lines.pop(0))
        end = at - block.start
        found.append(Command(" ".join(words), block.text[start - block.start : end], start))
    return found
