"""Tables as values: their columns with formats, and rows of cells that a benchmark yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RATIO = "{0[0]:.2f} ({0[1]:.2f}..{0[2]:.2f})"
"""Format of a scripts._timing.Ratio's `cell`: [median, low, high]."""

Cell = Any
"""A str, a number, None, or a list of numbers: what JSON can hold."""


@dataclass(frozen=True)
class Table:
    """A table that a benchmark fills.

    Attributes:
        name: under which its results are stored.
        columns: heading -> format, ".2f" as of `format` or "{:.2f} s" as of str.format; "": as is.
        keys: so many columns at the left name a row; a row with the same ones replaces it.
    """

    name: str
    columns: Mapping[str, str]
    keys: int = 1

    def row(self, *cells: Cell) -> Row:
        """A row of this table.

        Raises:
            ValueError: there are more or fewer cells than columns.
        """
        if len(cells) != len(self.columns):
            raise ValueError(f"{self.name}: {len(cells)} cells; columns: {', '.join(self.columns)}")
        return Row(self, cells)


@dataclass(frozen=True)
class Row:
    """Cells of one row, and the table that they belong to."""

    table: Table
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Missed:
    """A bound that a benchmark sets and the figures miss; the run fails at its end."""

    text: str


def shown(value: Cell, form: str) -> str:
    """Text of a cell.

    Args:
        value: None becomes "-", text stays as it is, a list is shown number by number.
        form: of the column.
    """
    if value is None:
        return "-"
    if isinstance(value, str):
        return " ".join(value.split()).replace("|", "\\|")
    if "{" not in form:
        form = "{:" + form + "}"
    if isinstance(value, list | tuple) and "{0[" not in form:
        return " / ".join(each if isinstance(each, str) else form.format(each) for each in value)
    return form.format(value)


def head(names: Iterable[str]) -> str:
    """Names of the columns, and the rule below them."""
    columns = list(names)
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"


def line(cells: Iterable[Cell], forms: Iterable[str]) -> str:
    """One row in Markdown."""
    return f"| {' | '.join(shown(*each) for each in zip(cells, forms, strict=True))} |"
