"""Commands, options and functions that messages tell people to use exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import onnxq
from onnxq.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
COMMAND = re.compile(r"`onnxq ([a-z][a-z-]*)([^`]*)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")
NAME = re.compile(r"(?<![\w./])onnxq\.([a-z_]+)(?=\()")
OF_OTHERS = {"--upgrade", "--quiet", "--no-deps", "--force-reinstall", "--user"}  # pip's


@functools.cache
def options_of(command: str) -> frozenset[str]:
    options = [p for p in main.commands[command].params if isinstance(p, click.Option)]
    named = [name for option in options for name in (*option.opts, *option.secondary_opts)]
    return frozenset([*named, "--help"])


@functools.cache
def strings() -> tuple[tuple[str, str], ...]:
    """(file and line, text) of every string in the package but docstrings, f-strings whole."""
    return tuple(
        (f"{path.relative_to(ROOT)}:{line}", text)
        for folder in ("onnxq", "operators")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "onnxq/operators" not in path.as_posix()
        for line, text in strings_of(ast.parse(path.read_text(encoding="utf-8")))
    )


def strings_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = [p.value if isinstance(p, ast.Constant) else "X" for p in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from [] if id(node) in skipped else [(node.lineno, node.value)]


@pytest.mark.nightly
def test_commands_that_messages_name_exist_with_their_options() -> None:
    wrong = []
    for place, text in strings():
        for command, rest in COMMAND.findall(text):
            if command not in main.commands:
                wrong.append(f"{place}: onnxq {command}")
                continue
            unknown = set(OPTION.findall(rest)) - options_of(command)
            wrong += [f"{place}: onnxq {command} {option}" for option in sorted(unknown)]
    assert wrong == []


@pytest.mark.nightly
def test_options_that_messages_name_exist_in_some_command() -> None:
    known = OF_OTHERS.union(*(options_of(command) for command in main.commands))
    wrong = {
        f"{place}: {option}"
        for place, text in strings()
        for option in OPTION.findall(text)
        if option not in known
    }
    assert wrong == set()


@pytest.mark.nightly
def test_functions_of_onnxq_that_messages_name_exist() -> None:
    wrong = {
        f"{place}: onnxq.{name}"
        for place, text in strings()
        for name in NAME.findall(text)
        if not hasattr(onnxq, name)
    }
    assert wrong == set()


@pytest.mark.parametrize("text", ["`onnxq quantise m.onnx`", "`onnxq bench --threads 2`"])
def test_what_does_not_exist_would_be_found(text: str) -> None:
    ((command, rest),) = COMMAND.findall(text)
    assert command not in main.commands or set(OPTION.findall(rest)) - options_of(command)
