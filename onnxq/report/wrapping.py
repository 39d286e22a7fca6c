"""Sentences that fit a terminal: words wrap, and what follows a line's first row is indented.

    note: 4 node(s) compute in float: Conv (1), Log (1). Their last bits may
      differ between machines

In a pipe a sentence stays one line, for `grep`. Words and paths are never broken. A command that is
there to be copied is printed by itself, without wrapping.
"""

import shutil
import sys
import textwrap

import click

from onnxq.shown import shown_lines

HANG = 2
"""Columns by which the rows behind the first are indented."""
LEAST = 24
"""Columns of a row, at least, however narrow the terminal is."""


def wrapped(text: str, width: int) -> str:
    """The text with every line broken between words, so that rows have at most `width` columns.

    A word that is longer stays whole, and so does one with a hyphen or a slash.
    """
    return "\n".join(_rows(line, max(width, LEAST)) for line in text.split("\n"))


def _rows(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + HANG)
    if len(line) <= width:
        return line
    return textwrap.fill(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def say(text: str) -> None:
    """A message on stdout, which fits where that is a terminal."""
    _say(text, is_error=False)


def say_aside(text: str) -> None:
    """A message on stderr, likewise."""
    _say(text, is_error=True)


def _say(text: str, *, is_error: bool) -> None:
    text = shown_lines(text)
    stream = sys.stderr if is_error else sys.stdout
    if stream is not None and stream.isatty():
        text = wrapped(text, shutil.get_terminal_size().columns)
    click.echo(text, err=is_error)
