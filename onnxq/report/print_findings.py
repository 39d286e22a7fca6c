"""Tables of verify's findings for people, the worst tensors first. Computes nothing but order."""

import math
import operator
from dataclasses import replace
from statistics import median

from rich.console import Console

from onnxq.checking.findings import Findings, OutputFinding, TensorFinding
from onnxq.errors import listed
from onnxq.quantized.output_verdict import LOW_SQNR_DB
from onnxq.report.console import print_execution
from onnxq.report.detail import is_whole
from onnxq.report.tables import print_table

MOST_OUTPUTS = 5
MOST_TENSORS = 15
"""Rows that are shown without -v, the worst, so that there are 40 lines at most."""
TWICE_DB = 6.02
"""Decibels of an error that is twice as large."""


def print_findings(
    console: Console,
    findings: Findings,
    min_sqnr_db: float | None = None,
    max_lsb: float | None = None,
) -> None:
    """Outputs, tensors, what could not be compared, and what ONNX Runtime runs."""
    _print_outputs(console, findings.outputs)
    for answers in findings.answers:
        said = answers if is_whole() else replace(answers, layout="")
        console.print(f"{said}, on a few of the samples")
    if findings.tensors:  # models quantized dynamically have no integers of a fixed scale
        _print_tensors(console, findings.tensors, min_sqnr_db, max_lsb)
    if findings.unmatched and is_whole():
        missing = [(u.name, u.reason) for u in findings.unmatched]
        print_table(console, "not compared", ("name", "why"), missing)
    elif findings.unmatched:
        names = listed([u.name for u in findings.unmatched])
        console.print(f"not compared: {names}: {findings.unmatched[0].reason}")
    print_execution(console, findings.execution)
    console.print(
        f"batches: {findings.batches}; float model {findings.float_hash[:12]}, "
        f"quantized {findings.quantized_hash[:12]}"
    )


def _print_outputs(console: Console, outputs: tuple[OutputFinding, ...]) -> None:
    if not is_whole() and len(outputs) > MOST_OUTPUTS:
        hidden = len(outputs) - MOST_OUTPUTS
        outputs = tuple(sorted(outputs, key=_worst_db)[:MOST_OUTPUTS])
        console.print(f"the worst outputs; {hidden} are no worse, -v shows them")
    rows = [
        (
            o.name,
            _db(o.sqnr_db),
            f"{o.cosine:.6f}",
            f"{o.max_error:.6g}",
            "-" if o.max_error_lsb is None else f"{o.max_error_lsb:.2f}",
            "-" if o.top1_agreement is None else f"{o.top1_agreement:.2%}",
            "-" if o.agreement is None else f"{o.agreement:.2%}",
        )
        for o in outputs
    ]
    header = ("output", "SQNR dB", "cosine", "max error", "in LSB", "same top-1", "equal")
    columns = len(header) if any(o.agreement is not None for o in outputs) else len(header) - 1
    shown = [row[:columns] for row in rows]
    print_table(console, "", header[:columns], shown, numbers=range(1, columns))
    for output in outputs:
        if output.worst_part is not None:
            console.print(f"output '{output.name}', {output.worst_part}")
        if output.nonfinite_pairs:
            of = f"{output.nonfinite_pairs} of {output.elements} numbers"
            console.print(f"output '{output.name}': {of} are NaN or Inf in both models")


def _worst_db(output: OutputFinding) -> float:
    """The lower, the worse; NaN is the worst."""
    db = output.sqnr_db if output.worst_part is None else output.worst_part.sqnr_db
    return -math.inf if math.isnan(db) else db


def _print_tensors(
    console: Console,
    tensors: tuple[TensorFinding, ...],
    min_sqnr_db: float | None,
    max_lsb: float | None,
) -> None:
    bounded = min_sqnr_db is not None or max_lsb is not None
    least = min_sqnr_db if bounded else _least(tensors)
    numbered = enumerate(tensors, 1)  # NaN is the worst
    ordered = sorted(numbered, key=lambda one: (not math.isnan(one[1].sqnr_db), one[1].sqnr_db))
    bad = {
        place
        for place, (_, t) in enumerate(ordered)
        if (least is not None and not t.sqnr_db >= least)
        or (max_lsb is not None and not t.max_error_lsb <= max_lsb)
    }
    shown = ordered if is_whole() else ordered[:MOST_TENSORS]
    rows = [
        (
            t.name,
            t.node or "-",
            str(number),
            t.dtype,
            f"{t.scale:.4g}",
            _db(t.sqnr_db),
            f"{t.max_error_lsb:.2f}",
            f"{t.saturated_share:.3%}",
        )
        for number, t in shown
    ]
    header = ("tensor", "node", "#", "integers", "scale", "SQNR dB", "max LSB", "saturated")
    marked = [place for place in sorted(bad) if place < len(shown)]
    title = "tensors, worst first (#: place in graph order)"
    print_table(console, title, header, rows, (2, 4, 5, 6, 7), marked)
    if bad:
        why = "break a bound" if bounded else f"have less than {least:.1f} dB"
        number, first = min((ordered[place] for place in bad), key=operator.itemgetter(0))
        where = f" of node {first.node}" if first.node else ""
        console.print(
            f"! {len(bad)} of {len(tensors)} tensors {why}; "
            f"the first in graph order is # {number}, {first.name}{where}\n"
        )
    if rest := ordered[len(shown) :]:
        best = _db(rest[0][1].sqnr_db)
        console.print(f"and {len(rest)} more, from {best} dB on; -v shows them\n")


def _least(tensors: tuple[TensorFinding, ...]) -> float:
    """The SQNR below which a tensor stands out: low, or of twice the median error."""
    known = [t.sqnr_db for t in tensors if not math.isnan(t.sqnr_db)]
    return max(LOW_SQNR_DB, median(known) - TWICE_DB) if known else LOW_SQNR_DB


def _db(value: float) -> str:
    return f"{value:.2f}"
