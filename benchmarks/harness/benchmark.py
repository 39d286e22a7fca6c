"""Benchmark as a value, and the decorator that makes one of a function that yields rows."""

from __future__ import annotations

import ast
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness.results import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import click

    from benchmarks.harness.table import Missed, Row, Table

    Measure = Callable[..., Iterator[Row | Missed]]

HERE = ROOT / "benchmarks"


@dataclass(frozen=True)
class Benchmark:
    """A question, and what measures its answer.

    Attributes:
        name: of the module.
        question: first paragraph of the module's docstring.
        tables: that the rows belong to.
        needs: packages whose versions are stored with the results.
        measure: yields rows, and the bounds that they miss; its parameters are the options.
        options: of the command.
    """

    name: str
    question: str
    tables: tuple[Table, ...]
    needs: tuple[str, ...]
    measure: Measure
    options: tuple[click.Parameter, ...]


def benchmark(*tables: Table, needs: tuple[str, ...] = ()) -> Callable[[Measure], Benchmark]:
    """A decorator: the benchmark of the module in which the function stands.

    Args:
        tables: that its rows belong to.
        needs: packages whose versions matter, beside onnxruntime, onnx and numpy.
    """

    def made(measure: Measure) -> Benchmark:
        name = measure.__module__.rpartition(".")[2]
        options = tuple(reversed(measure.__dict__.pop("__click_params__", [])))
        return Benchmark(name, question(name), tables, needs, measure, options)

    return made


def names() -> list[str]:
    """Names of the benchmarks."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("__"))


def question(name: str) -> str:
    """First paragraph of the docstring of a benchmark's module, which is not imported."""
    text = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8")))
    return " ".join((text or "").partition("\n\n")[0].split())


def find(name: str) -> Benchmark:
    """The benchmark of that name; imports its module.

    Raises:
        LookupError: the module has none, or several.
    """
    module = importlib.import_module(f"benchmarks.{name}")
    found = [each for each in vars(module).values() if isinstance(each, Benchmark)]
    own = [each for each in found if each.name == name]
    if len(own) != 1:
        raise LookupError(f"benchmarks/{name}.py: {len(own)} benchmarks; wanted one")
    return own[0]
