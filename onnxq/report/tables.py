"""Tables that fit the terminal: names are cut in the middle, words wrap, numbers stay whole.

    spare = width - gaps - numbers
    cut   = the largest c with sum(min(natural width, c) over names and words) <= spare

A column without a space in any cell is one of names, and so is the first. Where the output is no
terminal, names stay whole, whatever the width, and the header stays one line: they are what one
searches for. Such a table may be wider than 80 columns.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from onnxq.report.detail import is_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rich.console import Console

GAP = 2  # columns between two cells
LEAST = 8  # columns of a cell, at least
READABLE = 40  # columns of words beside a name that takes all the room
MOST_ROWS = 20
"""Rows of a table that is sorted, worst first; the rest are counted."""
ELLIPSIS = "..."  # every terminal and every encoding has it
MARK = "! "
MARKED = "bold red"


def print_table(
    console: Console,
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Sequence[int] = (),
    marked: Collection[int] = (),
) -> None:
    """A table and an empty line.

    Args:
        console: to print on.
        title: above it; empty: none.
        header: names of the columns. The first column is names.
        rows: cells.
        numbers: columns that are right-aligned and never broken.
        marked: places of rows that stand out, by a sign and, where there is colour, by colour.
    """
    cells = [list(row) for row in rows]
    if marked:
        for place, row in enumerate(cells):
            row[0] = (MARK if place in marked else " " * len(MARK)) + row[0]
    widths = _widths(console, header, cells, numbers)
    table = Table(box=None, pad_edge=False)
    for i, name in enumerate(header):
        justify = "right" if i in numbers else "left"
        table.add_column(Text(name), justify=justify, width=widths[i], overflow="fold")  # type: ignore[arg-type]  # a literal
    for place, row in enumerate(cells):
        # lists of names wrap, as words do
        shown = [
            shortened(cell, width) if _is_name(cell) else cell
            for cell, width in zip(row, widths, strict=True)
        ]
        style = MARKED if place in marked else None
        table.add_row(*map(Text, shown), style=style)
    if title:
        console.print(f"{title}:")
    _print_lines(console, table, sum(widths) + GAP * len(widths))
    console.print()


def shortened(name: str, width: int) -> str:
    """The name, at most so many columns wide, cut in the middle: /model/la...attn/MatMul."""
    if cell_len(name) <= width:
        return name
    kept = max(width - len(ELLIPSIS), 2)
    return name[: kept // 2] + ELLIPSIS + name[-(kept - kept // 2) :]


def _is_name(cell: str) -> bool:
    return " " not in cell.removeprefix(MARK).strip()


def _widths(
    console: Console, header: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[int]
) -> list[int]:
    """Columns of each column, without gaps."""
    within = console.width - GAP * len(header)
    natural = [
        max(map(cell_len, [name, *(row[i] for row in cells)])) for i, name in enumerate(header)
    ]
    if sum(natural) > within and console.is_terminal:  # names of columns are broken first
        natural = [
            max(map(cell_len, [*name.split(), "", *(row[i] for row in cells)]))
            for i, name in enumerate(header)
        ]
    flexible = [i for i in range(len(header)) if i not in numbers]
    spare = within - sum(natural[i] for i in numbers)
    if 0 in flexible and (is_whole() or not console.is_terminal):
        spare = max(spare - natural[0], READABLE * (len(flexible) - 1))
        whole = [i for i in flexible if i == 0 or all(_is_name(row[i]) for row in cells)]
        spare -= sum(natural[i] for i in whole[1:])
        flexible = [i for i in flexible if i not in whole]
    cut = _cut([natural[i] for i in flexible], spare)
    return [min(n, cut) if i in flexible else n for i, n in enumerate(natural)]


def _cut(widths: Sequence[int], spare: int) -> int:
    """The largest bound on each width with which all of them fit."""
    left, count = spare, len(widths)
    for width in sorted(widths):
        if width * count > left:
            return max(left // count, LEAST)
        left, count = left - width, count - 1
    return max(widths, default=LEAST)


def _print_lines(console: Console, table: Table, width: int) -> None:
    """Prints the table; where it goes into a pipe, without the spaces behind its lines."""
    before = console.width
    if width > before:  # setting it fixes it, whatever becomes of the window
        console.width = width
    with console.capture() if not console.is_terminal else nullcontext() as captured:
        console.print(table)
    if width > before:
        console.width = before
    for line in captured.get().splitlines() if captured else ():
        console.print(Text(line.rstrip()), soft_wrap=True)
