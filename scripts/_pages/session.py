"""A page that is run: its Python in this process, its commands in bash, in a folder of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scripts._pages.comparison import agrees
from scripts._pages.page import ROOT, Block, Command, Page, PythonBlock, commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH = 88
"""Columns of the terminal that pages show."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Output of one step: as the page shows it, and as it came."""

    shown: str
    came: str
    start: int
    """Index of the shown output in the page."""
    is_timed: bool
    is_fenced: bool
    """The output is, or needs, a block of its own."""

    @property
    def agrees(self) -> bool:
        """Whether what came is what is shown."""
        return agrees(self.shown, self.came, is_timed=self.is_timed)


def run(page: Page, folder: Path) -> Iterator[Shown]:
    """Runs a page in a folder, whose `models` are the repository's; yields each step's output.

    Raises:
        Exception: what the page's Python raises, with the page's name in its traceback.
    """
    (folder / "models").symlink_to(ROOT / "models")
    _write_commands(folder / ".bin")
    names: dict[str, object] = {"__name__": "page"}
    with contextlib.chdir(folder), _importable():
        for step in page.steps():
            if isinstance(step, PythonBlock):
                yield _python(page, step, names)
            elif step.file is not None:
                (folder / step.file).write_text(step.text, "utf-8")
            else:
                yield from (_bash(line, step, folder) for line in commands(step))


def _python(page: Page, step: PythonBlock, names: dict[str, object]) -> Shown:
    out = io.StringIO()
    line = page.text.count("\n", 0, step.block.start)
    code = compile("\n" * line + step.block.text, page.name, "exec")
    with contextlib.redirect_stdout(out):
        exec(code, names)
    if step.output is None:
        end = step.block.start + len(step.block.text)
        return Shown("", out.getvalue(), end, step.block.is_timed, is_fenced=True)
    output = step.output
    return Shown(output.text, out.getvalue(), output.start, output.is_timed, is_fenced=True)


def _bash(command: Command, block: Block, folder: Path) -> Shown:
    """Output of a command, errors too; its exit code where that is not 0."""
    done = subprocess.run(
        ["bash", "-c", command.line],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{folder / '.bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "COLUMNS": str(WIDTH),
            "PYTHONWARNINGS": "",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    code = f"exit code {done.returncode}\n" if done.returncode else ""
    came = done.stdout.replace(f"{folder}{os.sep}", "") + code  # names as they were given
    return Shown(command.output, came, command.start, block.is_timed, is_fenced=False)


def _write_commands(folder: Path) -> None:
    """Commands `onnxq` and `python` of this environment, ahead of all others."""
    folder.mkdir()
    for name, words in (("onnxq", " -m onnxq"), ("python", "")):
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n', "utf-8")
        file.chmod(0o755)


@contextlib.contextmanager
def _importable() -> Iterator[None]:
    """Modules of the current folder, which the page wrote, can be imported."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")
