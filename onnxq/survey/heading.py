"""Heading of a report: the verdict in a sentence, its bounds, and where it comes from."""

import datetime
import math
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

from onnxq.checking.findings import Findings, OutputFinding, TensorFinding
from onnxq.checking.summary import NodeCounts
from onnxq.core.brief import size_text
from onnxq.core.processor import processor_name
from onnxq.core.version import VERSION
from onnxq.ort.version import distribution
from onnxq.page.content import CheckedBound, Figure, Head, NamedText
from onnxq.page.wording import decibels, microseconds, share_away
from onnxq.quantized.output_verdict import LOW_SQNR_DB
from onnxq.times.attribution import PairedNodeTimes

PACKAGES = ("onnx", "numpy")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that a report shows, and that its command fails by.

    Attributes:
        min_sqnr_db: of every tensor and float output; None: none.
        max_lsb: largest error, in LSB; None: none.
    """

    min_sqnr_db: float | None = None
    max_lsb: float | None = None


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """Names of what a report is about.

    Attributes:
        float_name: file of the float model, or words for it.
        sizes: bytes of both.
        command: that writes the report; empty: none does.
        target: machine that the quantized model is for; empty: not known.
        samples: that were run; 0: not known.
    """

    float_name: str
    quantized_name: str
    sizes: tuple[int, int]
    command: str = ""
    target: str = ""
    samples: int = 0


def heading(
    subject: ReportSubject,
    findings: Findings,
    nodes: NodeCounts,
    bounds: Bounds,
    times: PairedNodeTimes | None,
    notes: tuple[str, ...] = (),
) -> Head:
    """The heading of a report."""
    floats = [o for o in _floats(findings) if not math.isnan(o.sqnr_db)]
    worst = min(floats, key=lambda o: o.sqnr_db, default=None)
    before, after = subject.sizes
    figures = [Figure("size", size_text(after), f"float {size_text(before)}")]
    if worst is not None:
        figures.insert(0, Figure("worst output", decibels(worst.sqnr_db), f"‘{worst.name}’"))
        if (part := worst.worst_part) is not None:
            figures.insert(1, Figure("worst part", decibels(part.sqnr_db), f"its {part.place}"))
        if worst.top1_agreement is not None:
            figures.insert(1, Figure("same top-1", f"{worst.top1_agreement:.1%}", "of the rows"))
    if times is not None:
        beside = f"float {microseconds(times.whole[0])}"
        figures.append(Figure("time of a run", microseconds(times.whole[1]), beside))
    said = f"of {nodes.integers + nodes.stored + nodes.floats}"
    figures.append(Figure("nodes in integers", str(nodes.integers), said))
    return Head(
        f"{subject.float_name} → {subject.quantized_name}",
        _verdict(worst, times, subject.sizes),
        _warning(worst),
        tuple(_bounds(findings, bounds)),
        tuple(figures),
        (
            NamedText("float model", findings.float_hash),
            NamedText("quantized model", findings.quantized_hash),
            *([NamedText("target", subject.target)] if subject.target else []),
            *([NamedText("samples", str(subject.samples))] if subject.samples else []),
            NamedText("batches", str(findings.batches)),
            NamedText("onnxq", VERSION),
            NamedText(*distribution()),
            *(NamedText(name, version(name)) for name in PACKAGES),
            NamedText("Python", platform.python_version()),
            *_here(),
        ),
        subject.command,
        notes,
    )


def _here() -> Iterator[NamedText]:
    """The machine that the times are of, how busy it was, and when."""
    yield NamedText("machine", f"{platform.system()}, {platform.machine()}")
    if processor := processor_name():
        yield NamedText("processor", processor)
    yield NamedText("threads", "1, for times")
    if hasattr(os, "getloadavg"):  # Windows has none
        yield NamedText("load", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    yield NamedText("date", datetime.datetime.now(datetime.UTC).isoformat(" ", "minutes"))


def _verdict(
    worst: OutputFinding | None, times: PairedNodeTimes | None, sizes: tuple[int, int]
) -> str:
    parts = [_distance(worst)]
    if worst is not None and worst.top1_agreement is not None:
        parts.append(f"the same class in {worst.top1_agreement:.1%} of the samples")
    parts.append(f"{sizes[1] / max(sizes[0], 1):.0%} of the size")
    if times is not None:
        parts.append(_speed(*times.speed))
    return f"{', '.join(parts)}."


def _speed(ratio: float, low: float, high: float) -> str:
    """Speed beside float's with its interval of 95%; a run that takes longer is called so."""
    if ratio >= 1:
        return f"{ratio:.2f} ({low:.2f} to {high:.2f}) times as fast here"
    return f"{1 / ratio:.2f} ({1 / high:.2f} to {1 / low:.2f}) times as long a run here"


def _distance(worst: OutputFinding | None) -> str:
    if worst is None:
        return "Not compared with float"
    if worst.sqnr_db == math.inf:
        return "Equal to float, bit for bit"
    if worst.sqnr_db == -math.inf:
        return f"Nothing of float left at output ‘{worst.name}’"
    return f"{share_away(worst.sqnr_db)} away from float"


def _warning(worst: OutputFinding | None) -> str:
    if worst is None or worst.sqnr_db >= LOW_SQNR_DB:
        return ""
    return (
        f"Output ‘{worst.name}’ keeps {decibels(worst.sqnr_db)} of the float model, below "
        f"{LOW_SQNR_DB:g}: that may ruin the model or do no harm."
    )


def _floats(findings: Findings) -> list[OutputFinding]:
    """Outputs that have decibels."""
    return [output for output in findings.outputs if output.agreement is None]


def _bounds(findings: Findings, bounds: Bounds) -> list[CheckedBound]:
    """Each bound beside the worst that was got."""
    said = []
    every: list[OutputFinding | TensorFinding] = [*_floats(findings), *findings.tensors]
    if bounds.min_sqnr_db is not None:
        known = (-math.inf if math.isnan(f.sqnr_db) else f.sqnr_db for f in every)
        got = min(known, default=-math.inf)
        words = (
            f"every tensor and float output at {bounds.min_sqnr_db:g} dB or more: "
            f"worst {decibels(got)}"
        )
        said.append(CheckedBound(words, got >= bounds.min_sqnr_db))
    if bounds.max_lsb is not None:
        errors = [f.max_error_lsb for f in every if f.max_error_lsb is not None]
        most = max(errors, default=math.inf)
        words = f"no error beyond {bounds.max_lsb:g} LSB: largest {most:.1f}"
        said.append(CheckedBound(words, most <= bounds.max_lsb))
    return said
