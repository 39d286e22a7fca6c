"""The table of this machine, with what it is."""

from __future__ import annotations

import datetime
import platform
from importlib import metadata
from typing import TYPE_CHECKING

from onnxq.core.processor import CPUINFO, processor_name
from onnxq.operator import Precision
from onnxq.ort import version
from onnxq.targets import find
from onnxq.targets.machines import AUTO
from onnxq.times import Costs
from onnxq.times.microbenchmarks.convolutions import convolution_links, fused_links
from onnxq.times.microbenchmarks.elements import element_links
from onnxq.times.microbenchmarks.measure import PASSES, measured
from onnxq.times.microbenchmarks.products import product_links, recurrent_links

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.times import Timing
    from onnxq.times.microbenchmarks.link import Link
    from onnxq.times.microbenchmarks.measure import Progress

DECIDING = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "asimd", "asimddp", "i8mm")
"""Flags of processors that decide which kernels ONNX Runtime takes."""


def measure_costs(
    target: str = AUTO, passes: int = PASSES, progress: Progress | None = None
) -> Costs:
    """Times of all kinds of nodes on this machine, one thread; takes 2 to 8 minutes a pass.

    Args:
        target: name of the target that the table is of; this machine's, unless you know better.
        passes: over all measurements; the least time counts, so that more of them bear more of
            what else the machine does.
        progress: called after each measurement.

    Raises:
        QConfigError: no target has that name.
    """
    name = find(target).name
    timings = measured(list(links()), passes, progress)
    return Costs(
        target=name,
        machine=processor_name() or platform.machine(),
        instruction_sets=" ".join(flag for flag in DECIDING if flag in _flags()),
        onnxruntime=_installed(),
        threads="1",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        throughput=throughput_of(timings),
        timings=timings,
    )


def links() -> Iterator[Link]:
    """Everything that is measured."""
    yield from element_links()
    yield from product_links()
    yield from recurrent_links()
    yield from convolution_links()
    yield from fused_links()


def throughput_of(timings: tuple[Timing, ...]) -> str:
    """Most operations per second in products of matrices, which tell the instructions in use."""
    best = {
        form: max(
            (2 * t.work.products / t.ns for t in timings if t.work.constants and t.form is form),
            default=0.0,
        )
        for form in (Precision.INT8, Precision.FLOAT)
    }
    return f"{best[Precision.INT8]:.0f} GOP/s on integers, {best[Precision.FLOAT]:.0f} on floats"


def _installed() -> str:
    for name in version.PACKAGES:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def _said(label: str) -> str:
    """Value of the first line of /proc/cpuinfo with that label; empty where there is none."""
    text = CPUINFO.read_text(errors="replace") if CPUINFO.is_file() else ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == label:
            return value.strip()
    return ""


def _flags() -> set[str]:
    return set((_said("flags") or _said("features")).split())
