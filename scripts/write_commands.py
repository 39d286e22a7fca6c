"""Writes the table of commands into docs/reference/cli.md, from the program itself.

python scripts/write_commands.py
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from onnxq.cli import main

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
LONGEST = 300
"""Characters of a help text's first sentence; click cuts what is longer."""

_TABLE = re.compile(r"(<!-- commands: .*? -->\n).*(<!-- end of commands -->\n)", re.DOTALL)


def table() -> str:
    """A Markdown row for every command: its name, and its help text's first sentence."""
    context = click.Context(main)
    commands = ((name, main.get_command(context, name)) for name in main.list_commands(context))
    rows = [
        f"| `onnxq {name}` | {command.get_short_help_str(LONGEST)} |"
        for name, command in commands
        if command is not None and not command.hidden
    ]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def with_table(page: str) -> str:
    """The page's text with the table between its marks."""
    return _TABLE.sub(lambda marks: f"{marks[1]}\n{table()}\n\n{marks[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
    print(PAGE)
