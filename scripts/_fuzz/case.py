"""A case: an input that was made wrong, and what is done with it.

A kind of input is a module with a function `case`, which `kinds.KINDS` names:

    def case(rng: np.random.Generator, scratch: Scratch) -> Case:
        path = scratch.inputs / "model.onnx"
        path.write_bytes(...)                    # whatever rng says
        calls = [command("inspect", path), Call("prepare(path)", lambda: onnxq.prepare(path))]
        return Case("2 bytes flipped", tuple(calls))

The function only makes files and calls; the worker runs the calls one after the other, each under
watch. It must depend on nothing but `rng` and the paths of `scratch`: then the number of a case
brings it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click
from click.testing import CliRunner

from onnxq import errors
from onnxq.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np


@dataclass(frozen=True, slots=True)
class Scratch:
    """Folders of one case; the current folder is the empty one below `root`.

    Attributes:
        root: holds them all; TMPDIR is below it too.
    """

    root: Path

    @property
    def inputs(self) -> Path:
        """Files that the calls read; they must not change."""
        return self.root / "in"

    @property
    def outputs(self) -> Path:
        """The only folder in which the calls may write."""
        return self.root / "out"

    @property
    def outside(self) -> Path:
        """A folder that no call has any business with; it holds `secret`."""
        return self.root / "outside"

    @property
    def secret(self) -> Path:
        """A file of SECRET_BYTES that no call may open."""
        return self.outside / "secret.bin"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder that a case starts with."""
        return self.inputs, self.outputs, self.outside, self.root / "cwd", self.root / "tmp"


SECRET_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Call:
    """One thing that is done with the input.

    Attributes:
        name: for the table, the same for all cases: "quantize", "prepare(proto)".
        run: does it; an exception is what it says.
    """

    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """An input that was made wrong.

    Attributes:
        words: what was made wrong with what.
        calls: run in this order.
        alone: the same input on ONNX Runtime, without onnxq; raises where that does not run it.
            None: ONNX Runtime has no part in this kind.
    """

    words: str
    calls: tuple[Call, ...]
    alone: Callable[[], object] | None = None


class MakeCase(Protocol):
    """Function `case` of the module of a kind."""

    def __call__(self, rng: np.random.Generator, scratch: Scratch) -> Case:
        """A case whose files lie in `scratch.inputs` (or, as bait, in `scratch.outside`)."""


class ExitError(Exception):
    """A command ended with another integer than 0.

    Attributes:
        code: its exit code.
        message: what it wrote to stderr.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def command(name: str, *args: object) -> Call:
    """Call of the command line in this process.

    Args:
        name: of the command.
        args: its arguments, converted to text.
    """

    def run() -> None:
        result = CliRunner().invoke(main, [name, *map(str, args)])
        error: BaseException | None = result.exception
        if result.exit_code == errors.OnnxqError.exit_code:  # a line is all that the user sees
            while isinstance(error, SystemExit | click.exceptions.Exit):
                error = error.__context__
        if error is not None and not isinstance(error, SystemExit):
            raise error
        if result.exit_code:
            raise ExitError(result.exit_code, result.stderr)

    return Call(name, run)
