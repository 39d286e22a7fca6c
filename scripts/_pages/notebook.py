"""A page as a Jupyter notebook: text in Markdown cells, Python and commands in code cells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scripts._pages.page import Block, Page, PythonBlock, commands

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"```\S*(?: clock)?\n$")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)

Cell = dict[str, Any]


def notebook(page: Page) -> dict[str, Any]:
    """The page in Jupyter's format 4.5; outputs are left to whoever runs it.

    Its first cell goes to the repository's folder, where the models are. Files that the page is
    given are those that the tutorial ahead of it has written.
    """
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        },
        "cells": [
            {**cell, "id": f"cell-{number}"} for number, cell in enumerate(_cells(page), start=1)
        ],
    }


def _cells(page: Page) -> Iterator[Cell]:
    at = 0
    for step in page.steps():
        block = step.block if isinstance(step, PythonBlock) else step
        yield from _markdown(_FENCE.sub("", page.text[at : block.start]))
        yield _integer(_source(step))
        end = step.output if isinstance(step, PythonBlock) and step.output else block
        at = page.text.index("```", end.start + len(end.text)) + len("```\n")
    yield from _markdown(page.text[at:])


def _source(step: PythonBlock | Block) -> str:
    if isinstance(step, PythonBlock):
        return step.block.text
    if step.file is not None:
        return f"%%writefile {step.file}\n{step.text}"
    return "".join(f"!{command.line}\n" for command in commands(step))


def _markdown(text: str) -> Iterator[Cell]:
    text = _COMMENT.sub("", text).strip("\n")
    if text:
        yield {"cell_type": "markdown", "metadata": {}, "source": text}


def _integer(source: str) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source.rstrip("\n"),
    }
