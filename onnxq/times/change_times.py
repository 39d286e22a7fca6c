"""Times of conversions and changes of layout on this machine: small models, profiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.ort.layouts import INTO_BLOCKS, OUT_OF_BLOCKS, QUANTIZES_AT_RUN, REORDERED
from onnxq.qdq.read import DEQUANTIZE, QUANTIZE
from onnxq.times import Change
from onnxq.times.microbenchmarks.parts import BLOCKS, Parts, integers, numbers
from onnxq.times.model_times import ChangeTime
from onnxq.times.timed_runs import profiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.times import Costs

SHAPES = ((1, 16, 8, 8), (1, 64, 56, 56))
"""Shapes of two tensors, of 1,024 and 200,704 elements; times are the line through both."""
SECONDS = 0.2
"""CPU seconds that go into each."""
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def change_times() -> dict[str, ChangeTime]:
    """Value of a Change -> its time; a part of a second."""
    few, many = (_timed(shape) for shape in SHAPES)
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    return {change: _line(sizes, [few[change], many[change]]) for change in few}


def _timed(shape: tuple[int, ...]) -> dict[str, float]:
    """Value of a Change -> nanoseconds for a tensor of that shape.

    Models of their own for small tensors: writing times down takes as long as they do.
    """
    _, channels, size, _ = shape
    parts = Parts()
    feeds = {"x": numbers(*shape), "q": integers(*shape), "t": integers(1, size, size, channels)}
    names = {change.value: build(parts, channels) for change, build in _BUILDS.items()}
    (run,) = profiled([parts.model(feeds, list(names.values()))], feeds, SECONDS)
    return {change: run.ns.get(name, 0.0) for change, name in names.items()}


def changes_of(costs: Costs) -> dict[str, ChangeTime]:
    """The same from a table."""
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    found = {}
    for change in Change:
        estimates = [costs.change(change, size) for size in sizes]
        if None not in estimates:
            found[change.value] = _line(sizes, [each.ns for each in estimates if each is not None])
    return found


def _line(sizes: list[int], ns: list[float]) -> ChangeTime:
    """The line through two measurements; no part of it is below 0."""
    slope = max((ns[1] - ns[0]) / (sizes[1] - sizes[0]), 0.0)
    return ChangeTime(max(ns[0] - slope * sizes[0], 0.0), slope)


def _qparams(parts: Parts) -> tuple[str, str]:
    return parts.constant(np.array(0.02, np.float32)), parts.constant(np.array(128, np.uint8))


_BUILDS: dict[Change, Callable[[Parts, int], str]] = {
    Change.QUANTIZE: lambda p, _: p.add(QUANTIZE, ["x", *_qparams(p)]),
    Change.DEQUANTIZE: lambda p, _: p.add(DEQUANTIZE, ["q", *_qparams(p)]),
    Change.QUANTIZE_AT_RUN: lambda p, _: p.add(QUANTIZES_AT_RUN, ["x"], results=3),
    Change.CHANNELS_LAST: lambda p, _: p.add(REORDERED, ["q"], {"perm": LAST}),
    Change.CHANNELS_FIRST: lambda p, _: p.add(REORDERED, ["t"], {"perm": FIRST}),
    Change.BLOCKED: lambda p, _: p.add(INTO_BLOCKS, ["x"], {}, BLOCKS),
    Change.UNBLOCKED: lambda p, c: p.add(OUT_OF_BLOCKS, ["x"], {"channels": c}, BLOCKS),
}
