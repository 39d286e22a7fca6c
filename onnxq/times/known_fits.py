"""Fits of a table's rows, in the lines below them: "# fit: operator,kind,form,error,base...".

They follow from the rows, which takes a tenth of a second. "# rows: CRC-32" before them says of
which rows they are; where these were edited, they are found anew.
"""

from __future__ import annotations

import csv
import io
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import Precision

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Key = tuple[str, str, Precision]
"""Operator, kind and form: what is measured together."""
FIT, ROWS = "fit", "rows"


@dataclass(frozen=True, slots=True)
class KnownFit:
    """A Fit of rows that are at hand, and how far it is off.

    Attributes:
        base: see `Fit`.
        error: see `error_of`.
    """

    base: tuple[float, ...]
    error: float


def as_lines(table: str, fits: Mapping[Key, KnownFit]) -> str:
    """Text that goes behind a table.

    Args:
        table: its text, from the first line to the last row.
        fits: of its rows, all digits of which are kept.
    """
    out = io.StringIO()
    out.write(f"# {ROWS}: {_crc(table.splitlines())}\n")
    writer = csv.writer(out, lineterminator="\n")
    for (operator, kind, form), fit in fits.items():
        out.write(f"# {FIT}: ")
        writer.writerow([operator, kind, form.value, repr(fit.error), *map(repr, fit.base)])
    return out.getvalue()


def fits_in(lines: Sequence[str], notes: Iterable[tuple[str, str]]) -> dict[Key, KnownFit]:
    """The fits of a table, as far as they are of its rows.

    Args:
        lines: of the table.
        notes: (name, value) of its lines "# name: value".

    Raises:
        ValueError: a line is no fit.
    """
    found = list(notes)
    if (ROWS, _crc(lines)) not in found:
        return {}
    return dict(map(_fit, csv.reader(value for name, value in found if name == FIT)))


def _fit(row: list[str]) -> tuple[Key, KnownFit]:
    operator, kind, form, error, *base = row
    return (operator, kind, Precision(form)), KnownFit(tuple(map(float, base)), float(error))


def _crc(lines: Sequence[str]) -> str:
    """CRC-32 of the rows among the lines of a table."""
    rows = "\n".join(line for line in lines if not line.startswith("#"))
    return str(zlib.crc32(rows.encode()))
