"""Results of a benchmark: rows of its tables with the run that measured them, as a JSON file."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.harness.table import head, line
from onnxq.core.processor import processor_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.harness.table import Cell, Row

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "results"
DIGITS = 6
"""Significant digits of a float that are stored: more than any table shows."""


@dataclass(frozen=True)
class Run:
    """One run of a benchmark.

    Attributes:
        machine: its processor.
        versions: package -> version.
        commit: of onnxq; "": not known.
        date: "2026-11-28"; "": not known.
        options: as given on the command line, paths without their folders.
    """

    machine: str
    versions: dict[str, str]
    commit: str = ""
    date: str = ""
    options: str = ""

    @classmethod
    def now(cls, packages: Iterable[str], options: Sequence[str]) -> Run:
        """The run that begins on this machine."""
        return cls(
            processor_name() or platform.machine(),
            {package: version(package) for package in packages},
            _git("describe", "--always", "--dirty"),
            datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            " ".join(PurePath(option).name for option in options),
        )


@dataclass
class Stored:
    """Rows of one table.

    Attributes:
        columns: heading -> format.
        keys: so many columns at the left name a row.
        rows: each begins with the number of its run.
    """

    columns: dict[str, str]
    keys: int = 1
    rows: list[list[Any]] = field(default_factory=list)

    def of(self, *keys: Cell) -> list[list[Cell]]:
        """Cells of the rows that begin with these keys."""
        return [row[1:] for row in self.rows if row[1 : 1 + len(keys)] == list(keys)]

    def all(self, column: str, *keys: Cell) -> list[Cell]:
        """Values of a column, of the rows that begin with these keys."""
        place = self._place(column)
        return [cells[place] for cells in self.of(*keys)]

    def __call__(self, column: str, *keys: Cell) -> Cell:
        """Value of a column in the one row that begins with these keys.

        Raises:
            KeyError: there is no such column, or not one such row.
        """
        found = self.all(column, *keys)
        if len(found) != 1:
            raise KeyError(f"{len(found)} rows begin with {', '.join(map(str, keys))}; wanted one")
        return found[0]

    def markdown(self, *keys: Cell) -> str:
        """The table, of the rows that begin with these keys, whose columns are left away.

        Raises:
            KeyError: no row begins with them.
        """
        rows, begin = self.of(*keys), len(keys)
        if not rows:
            raise KeyError(f"no row begins with {', '.join(map(str, keys))}")
        forms = list(self.columns.values())[begin:]
        lines = [head(list(self.columns)[begin:])]
        return "\n".join(lines + [line(cells[begin:], forms) for cells in rows])

    def _place(self, column: str) -> int:
        names = list(self.columns)
        if column not in names:
            raise KeyError(f"no column {column!r}; there are {', '.join(names)}")
        return names.index(column)


@dataclass
class Results:
    """Results of a benchmark, of one run or several."""

    runs: list[Run] = field(default_factory=list)
    tables: dict[str, Stored] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Results:
        """The results of a file; none where there is no file.

        Raises:
            msgspec.ValidationError: the file holds something else.
        """
        if not path.is_file():
            return cls()
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def add(self, run: Run, row: Row) -> None:
        """Puts a row in place of the one with the same keys, or at the end.

        Rows of a table whose columns have changed since are dropped.
        """
        if run not in self.runs:
            self.runs.append(run)
        table, columns = row.table, dict(row.table.columns)
        stored = self.tables.setdefault(table.name, Stored(columns, table.keys))
        if (stored.columns, stored.keys) != (columns, table.keys):
            stored.columns, stored.keys, stored.rows = columns, table.keys, []
        cells = [_plain(cell) for cell in row.cells]
        added = [self.runs.index(run), *cells]
        for place, other in enumerate(stored.rows):
            if other[1 : 1 + table.keys] == cells[: table.keys]:
                stored.rows[place] = added
                return
        stored.rows.append(added)

    def save(self, path: Path) -> None:
        """Writes the file, a row per line, without runs of which no row is left."""
        used = sorted({row[0] for table in self.tables.values() for row in table.rows})
        lines = [f' "runs": {_json([asdict(self.runs[i]) for i in used])},', ' "tables": {']
        for name, table in self.tables.items():
            rows = [_json([used.index(row[0]), *row[1:]]) for row in table.rows]
            lines += [
                f"  {_json(name)}: {{",
                f'   "columns": {_json(table.columns)},',
                f'   "keys": {table.keys},',
                '   "rows": [',
                ",\n".join(f"    {row}" for row in rows),
                "   ]",
                "  },",
            ]
        lines[-1] = lines[-1].rstrip(",")
        path.write_text("\n".join(["{", *lines, " }", "}"]) + "\n", encoding="utf-8")


def load_all(folder: Path = FOLDER) -> dict[str, Results]:
    """Results of every benchmark that has some, by its name."""
    return {path.stem: Results.load(path) for path in sorted(folder.glob("*.json"))}


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _plain(cell: Cell) -> Cell:
    """The cell as JSON can hold it."""
    if isinstance(cell, list | tuple):
        return [_plain(each) for each in cell]
    if hasattr(cell, "item"):  # a scalar of NumPy
        cell = cell.item()
    if isinstance(cell, float):
        rounded = float(f"{cell:.{DIGITS}g}")
        return rounded if abs(rounded) < float("inf") else str(cell)
    return cell if cell is None or isinstance(cell, int) else str(cell)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
