"""Times of operators in each precision on one machine, as `onnxq costs` measured them, in a CSV.

The first lines are "# name: value": which machine, and how it was measured. Below them, one row per
measurement: the Work of a node, the precision it took, and its nanoseconds among its like on one
thread. Behind the rows stand their fits, see `known_fits`.
"""

from __future__ import annotations

import csv
import dataclasses
import enum
import functools
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import onnx_ir as ir

from onnxq.core.atomic import write_atomically
from onnxq.core.regular import why_no_file
from onnxq.errors import QConfigError
from onnxq.graph.sizes import Sizes
from onnxq.operator import Precision
from onnxq.ort import facts
from onnxq.page.card import card_of
from onnxq.times.fit import Fit, error_of
from onnxq.times.work import FUSED, RUN, PrecisionOf, Work, is_absorbed, work_of

FORMAT = "onnxq.costs 2"
ANEW = "Measure again: `onnxq costs -o FILE`."
SIZES = ("read", "written", "constants", "products", "rows")
COLUMNS = ("operator", "kind", "precision", *SIZES, "ns")
SHARED = {
    **{each: Precision.FLOAT for each in Precision if each.runs_in_float},
    Precision.FLOAT_BETWEEN_QDQ: Precision.FLOAT,
}
"""Precisions that run the kernel of another one where they were not measured: stored weights become
floats when a session is made, and between 16-bit integers ONNX Runtime computes in float."""
EVERYWHERE = "portable"
"""The target that may take any table: its files run on every machine, measured or not."""
SHOWN_BY = {EVERYWHERE: "x86-vnni"}
"""Target -> the one whose table it takes: of the processors that portable files run on, the one
that was measured. Its precisions are then those of that target, and so is its accuracy."""


class Change(enum.Enum):
    """Change of a tensor between two nodes whose precisions differ."""

    QUANTIZE = "quantize"
    """Float32 to integers."""
    DEQUANTIZE = "dequantize"
    """Integers to float32."""
    QUANTIZE_AT_RUN = "quantize at run"
    """Float32 to integers whose scale is found first."""
    CHANNELS_LAST = "channels last"
    """Integers (N, C, H, W) to (N, H, W, C), as integer convolutions run."""
    CHANNELS_FIRST = "channels first"
    """Integers (N, H, W, C) to (N, C, H, W)."""
    BLOCKED = "blocked"
    """Floats (N, C, H, W) to blocks of channels, as float convolutions run."""
    UNBLOCKED = "unblocked"
    """Floats in blocks of channels to (N, C, H, W)."""

    def work(self, elements: int) -> Work:
        """Work of changing a tensor of so many elements."""
        return Work(self.value, "change", elements, elements)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted time.

    Attributes:
        ns: nanoseconds on one thread.
        error: relative error of the table for such work: the mean over measured shapes, each
            predicted from the others.
    """

    ns: float
    error: float

    @property
    def error_ns(self) -> float:
        """Nanoseconds by which it may be wrong."""
        return self.ns * self.error


@dataclass(frozen=True, slots=True)
class Timing:
    """One measurement.

    Attributes:
        work: of the node.
        precision: that it took; FLOAT for changes of layout in float, INTEGER for those of
            integers.
        ns: its time among its like, one thread.
    """

    work: Work
    precision: Precision
    ns: float


@dataclass(frozen=True)
class Costs:
    """Times of operators on one machine.

    Attributes:
        target: name of the target that was measured.
        machine: name of its processor.
        instruction_sets: those that decide kernels, separated by spaces.
        onnxruntime: version.
        threads: of a session.
        date: of the measurement, as 2026-11-22.
        throughput: most operations per second in MatMuls, which tells the instructions in use.
        timings: what was measured.
        fits: those that are known; others follow from the timings when they are asked for.
    """

    target: str
    machine: str
    instruction_sets: str
    onnxruntime: str
    threads: str
    date: str
    throughput: str
    timings: tuple[Timing, ...] = dataclasses.field(repr=False)
    fits: Mapping[Key, KnownFit] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    _repr_html_ = card_of

    @functools.cached_property
    def _rows(self) -> dict[Key, list[Timing]]:
        rows: dict[Key, list[Timing]] = {}
        for timing in self.timings:
            key = (timing.work.operator, timing.work.kind, timing.precision)
            rows.setdefault(key, []).append(timing)
        return rows

    @functools.cached_property
    def _fits(self) -> dict[Key, tuple[Fit, float]]:
        return {}

    @functools.cached_property
    def _known(self) -> dict[tuple[Work, Precision], Estimate | None]:
        return {}

    @property
    def run_ns(self) -> float:
        """Nanoseconds that a run takes whatever its nodes are; 0 where that was not measured."""
        run = self.node(Work(RUN), Precision.FLOAT)
        return 0.0 if run is None else run.ns

    def node(self, work: Work, precision: Precision) -> Estimate | None:
        """Time of a node in a precision, conversions around it not counted; None: not measured."""
        if (work, precision) not in self._known:
            self._known[work, precision] = self._estimate(work, precision)
        return self._known[work, precision]

    def _estimate(self, work: Work, precision: Precision) -> Estimate | None:
        for each in (precision, SHARED.get(precision)):
            found = None if each is None else self._fit(work, each)
            if found is not None:
                return Estimate(found[0].ns(work.sizes), found[1])
        return None

    def of_node(
        self,
        node: ir.Node,
        precision: Precision,
        precision_of: PrecisionOf,
        sizes: Mapping[str, Sizes],
    ) -> tuple[Estimate, ...] | None:
        """Times of what a node runs in that precision; None: not known.

        A node that another one computes takes what it adds to that. Between integers, an operator
        without integer kernel converts on both sides.

        Args:
            node: of the main graph.
            precision: of it.
            precision_of: those of its sources.
            sizes: of the values, by name.
        """
        work = work_of(node, sizes)
        if is_absorbed(node, precision, precision_of):
            inside = None if work is None else self.node(replace(work, kind=FUSED), precision)
            return () if inside is None else (inside,)
        if work is None:
            return None
        found = self.node(work, precision)
        if found is not None:
            return (found,)
        floats = self.node(work, Precision.FLOAT)
        if precision is not Precision.INT8 or floats is None or not facts.of(node).stays_float:
            return None
        changes = (
            self.change(Change.DEQUANTIZE, work.read),
            self.change(Change.QUANTIZE, work.written),
        )
        return (floats, *(end for end in changes if end is not None))

    def change(self, change: Change, elements: int) -> Estimate | None:
        """Time of changing a tensor of so many elements; None: not measured."""
        return self.node(change.work(elements), Precision.FLOAT)

    def _fit(self, work: Work, precision: Precision) -> tuple[Fit, float] | None:
        """(fit, its error), made when it is first asked for."""
        key = (work.operator, work.kind, precision)
        if key not in self._fits:
            rows = self._rows.get(key)
            if rows is None:
                return None
            measured = [t.work.sizes for t in rows], [t.ns for t in rows]
            known = self.fits.get(key)
            self._fits[key] = (
                (Fit.of(*measured), error_of(*measured))
                if known is None
                else (Fit.with_base(known.base, *measured), known.error)
            )
        return self._fits[key]

    def check_target(self, target: str) -> None:
        """Passes where the table may decide for that target.

        Raises:
            QConfigError: it is of another one, whose times say nothing.
        """
        if target not in (self.target, EVERYWHERE) and SHOWN_BY.get(target) != self.target:
            raise QConfigError(
                f"the costs were measured on a machine of target '{self.target}'; the model is for "
                f"'{target}'. Measure there: `onnxq costs -o FILE`, or leave them out."
            )

    def errors(self) -> dict[Key, tuple[int, float]]:
        """(rows, relative error) of each (operator, kind, precision), in the table's order."""
        return {key: (len(self._rows[key]), fit.error) for key, fit in self.known_fits().items()}

    def save(self, path: str | Path) -> None:
        """Writes the CSV file, which is there whole or not at all.

        Raises:
            OutputError: the file cannot be written.
        """
        table = self.to_csv()
        fits = Costs.from_csv(table).known_fits()  # of rounded numbers, as they will be read
        text = f"{table}{as_lines(table, fits)}".encode()
        write_atomically(path, lambda file: file.write(text))

    def to_csv(self) -> str:
        """The table as `load` reads it."""
        out = io.StringIO()
        out.write(f"# format: {FORMAT}\n")
        for name in HEADER:
            out.write(f"# {name}: {getattr(self, name)}\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for timing in self.timings:
            work = timing.work
            named = (work.operator, work.kind, timing.precision.value)
            writer.writerow([*named, *work.sizes, f"{timing.ns:.4g}"])
        return out.getvalue()

    def known_fits(self) -> dict[Key, KnownFit]:
        """Fits of all rows."""
        found = {}
        for key, rows in self._rows.items():
            fitted = self._fit(rows[0].work, key[2])
            assert fitted is not None  # the rows are there
            found[key] = KnownFit(tuple(fitted[0].base.tolist()), fitted[1])
        return found

    @classmethod
    def load(cls, path: str | Path) -> Costs:
        """The table of a CSV file.

        Raises:
            QConfigError: the file is missing, or is no table of costs.
        """
        if why := why_no_file(path):
            raise QConfigError(f"costs '{path}': {why}. {ANEW}")
        try:
            return cls.from_csv(Path(path).read_text("utf-8"))
        except (ValueError, LookupError) as error:
            raise QConfigError(f"costs '{path}' are no table of costs: {error}. {ANEW}") from error

    @classmethod
    def from_csv(cls, text: str) -> Costs:
        """The table of the text of a CSV file.

        Raises:
            ValueError: it has another format, other columns, or a row that is none.
        """
        lines = text.splitlines()
        notes = [line[1:].partition(":") for line in lines if line.startswith("#")]
        pairs = [(name.strip(), value.strip()) for name, _, value in notes]
        header = dict(pairs)
        if header.pop("format", None) != FORMAT:
            raise ValueError(f"its first line is not '# format: {FORMAT}'")
        if missing := [name for name in HEADER if name not in header]:
            raise ValueError(f"its head lacks '{missing[0]}'")
        reader = csv.reader(line for line in lines if not line.startswith("#"))
        if tuple(next(reader, ())) != COLUMNS:
            raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
        timings = tuple(map(_timing, reader))
        named = {name: header[name] for name in HEADER}
        return cls(**named, timings=timings, fits=fits_in(lines, pairs))


HEADER = tuple(
    field.name for field in dataclasses.fields(Costs) if field.name not in {"timings", "fits"}
)


def _timing(row: list[str]) -> Timing:
    if len(row) != len(COLUMNS):
        raise ValueError(f"a row has {len(row)} columns: {row}")
    operator, kind, precision, *sizes, ns = row
    numbers = [int(size) for size in sizes]
    if min(numbers) < 0 or not 0 < float(ns) < float("inf"):
        raise ValueError(f"a row has sizes or a time below 0: {row}")
    return Timing(Work(operator, kind, *numbers), Precision(precision), float(ns))


@functools.cache
def costs_of(target: str) -> Costs | None:
    """The table that was measured on a machine of that target; None: there is none.

    Args:
        target: name of a Target; portable has the table of another one, see SHOWN_BY.
    """
    file = resources.files("onnxq.times") / f"{SHOWN_BY.get(target, target)}.csv"
    return Costs.from_csv(file.read_text("utf-8")) if file.is_file() else None


# --- Fits of a table's rows, in the lines below them: "# fit:
# operator,kind,precision,error,base..."
#
# They follow from the rows, which takes a tenth of a second. "# rows: CRC-32" before them says of
# which rows they are; where these were edited, they are found anew.


Key = tuple[str, str, Precision]
"""Operator, kind and precision: what is measured together."""
FIT, ROWS = "fit", "rows"


@dataclass(frozen=True, slots=True)
class KnownFit:
    """A Fit of rows that are at hand, and how far it is off."""

    base: tuple[float, ...]
    error: float


def as_lines(table: str, fits: Mapping[Key, KnownFit]) -> str:
    """Text that goes behind a table."""
    out = io.StringIO()
    out.write(f"# {ROWS}: {_crc(table.splitlines())}\n")
    writer = csv.writer(out, lineterminator="\n")
    for (operator, kind, precision), fit in fits.items():
        out.write(f"# {FIT}: ")
        writer.writerow([operator, kind, precision.value, repr(fit.error), *map(repr, fit.base)])
    return out.getvalue()


def fits_in(lines: Sequence[str], notes: Iterable[tuple[str, str]]) -> dict[Key, KnownFit]:
    """The fits of a table, as far as they are of its rows."""
    found = list(notes)
    if (ROWS, _crc(lines)) not in found:
        return {}
    return dict(map(_fit, csv.reader(value for name, value in found if name == FIT)))


def _fit(row: list[str]) -> tuple[Key, KnownFit]:
    operator, kind, precision, error, *base = row
    return (operator, kind, Precision(precision)), KnownFit(tuple(map(float, base)), float(error))


def _crc(lines: Sequence[str]) -> str:
    """CRC-32 of the rows among the lines of a table."""
    rows = "\n".join(line for line in lines if not line.startswith("#"))
    return str(zlib.crc32(rows.encode()))
