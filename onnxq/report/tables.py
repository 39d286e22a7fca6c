"""Tables that fit the terminal: names are cut in the middle, words wrap, numbers stay whole.

    spare = width - gaps - numbers
    cut   = the largest c with sum(min(natural width, c) over names and words) <= spare

A column without a space in any cell is one of names, and so is the first. Names that do not fit
first lose what all of their column share at either end, up to a separator: /layer1/conv1_output_0
and /layer1/conv2_output_0 become ...conv1... and ...conv2.... Where the output is no terminal,
names stay whole, whatever the width, and the header stays one line: they are what one searches for.
Such a table is wider than 80 columns where names leave words too little room.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from onnxq.report.detail import is_whole
from onnxq.shown import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rich.console import Console

GAP = 2  # columns between two cells
LEAST = 8  # columns of a cell, at least
NARROW = 16  # columns of words that still can be read
READABLE = 40  # columns of words beside a name that leaves them less than that
ELLIPSIS = "..."  # every terminal and every encoding has it
SEPARATORS = "/._:"  # between the parts of a name
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

    `numbers`: columns that are right-aligned and never broken.
    `marked`: places of rows that stand out, by a sign and, where there is colour, by colour.
    """
    cells = _that_fit(console, header, [[*map(shown, row)] for row in rows], numbers)
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
        fitting = [
            shortened(cell, width) if _is_name(cell) else cell
            for cell, width in zip(row, widths, strict=True)
        ]
        style = MARKED if place in marked else None
        table.add_row(*map(Text, fitting), style=style)
    if title:
        console.print(f"{title}:")
    _print_lines(console, table, sum(widths) + GAP * len(widths))
    console.print()


def _that_fit(
    console: Console, header: Sequence[str], cells: list[list[str]], numbers: Sequence[int]
) -> list[list[str]]:
    """The cells; where the terminal is too narrow, names without what their column shares."""
    if not cells or not console.is_terminal or is_whole():
        return cells
    columns = [list(column) for column in zip(*cells, strict=True)]
    widths = [
        max(map(cell_len, [*name.split(), *c])) for name, c in zip(header, columns, strict=True)
    ]
    if sum(widths) + GAP * len(widths) + len(MARK) <= console.width:
        return cells
    for place, column in enumerate(columns):
        if place not in numbers and all(map(_is_name, column)):
            columns[place] = distinct(column)
    return [list(row) for row in zip(*columns, strict=True)]


def distinct(names: Sequence[str]) -> list[str]:
    """The names, "..." in place of what all of them begin or end with, up to a separator.

    Separators are the characters in SEPARATORS. Fewer than two different names stay whole, and so
    does an end that "..." would not make shorter; of each name something is left.
    """
    known = set(names) - {""}
    if len(known) < 2:
        return list(names)
    ahead = _shared_end(known)
    left = {name[ahead:] for name in known}
    behind = _shared_end({name[::-1] for name in left})
    return [_without(name, ahead, behind) if name else name for name in names]


def _shared_end(names: Collection[str]) -> int:
    """Characters that all names begin with, up to a separator; 0 where "..." is no shorter."""
    first, last = min(names), max(names)  # all others lie between the two
    differing = (place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    shared = first[: min(next(differing, len(first)), *(len(name) - 1 for name in names))]
    end = max(map(shared.rfind, SEPARATORS)) + 1
    return end if end > len(ELLIPSIS) else 0


def _without(name: str, ahead: int, behind: int) -> str:
    start, end = ELLIPSIS * bool(ahead), ELLIPSIS * bool(behind)
    return f"{start}{name[ahead : len(name) - behind]}{end}"


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
        spare, others = spare - natural[0], len(flexible) - 1
        if spare < NARROW * others:
            spare = READABLE * others
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
