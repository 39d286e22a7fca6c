"""Tables of times in which every node takes the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.sizes import sizes_of
from onnxq.operator import Precision
from onnxq.static.choosing.measurements import Measurements
from onnxq.static.deciders import decided_again
from onnxq.times import Change, Costs, Timing, Work, work_of
from onnxq.times.work import RUN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.graph.sizes import Sizes
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics

SHAPE = (1, 3, 8, 8)
"""Shape of the models' input x."""


def table(
    prepared: Prepared,
    float_ns: float,
    integer_ns: float,
    run_ns: float = 1.0,
    change_ns: float = 1000.0,
) -> Costs:
    """Every node of the model takes so long; two rows of each kind, so that the error is small."""
    sizes = sizes_of(prepared.model, {"x": SHAPE})
    works = {work_of(node, sizes) for node in prepared.model.graph} - {None}
    every = [
        *((Change.work(change, 100), Precision.FLOAT, change_ns) for change in Change),
        *((work, Precision.FLOAT, float_ns) for work in works),
        *((work, Precision.INT8, integer_ns) for work in works),
        *((work, Precision.INT8_FLOAT_OUTPUT, integer_ns) for work in works),
        (Work(RUN), Precision.FLOAT, run_ns),
    ]
    timings = tuple(Timing(w, f, ns) for w, f, ns in every if w is not None for _ in range(2))
    return Costs("x86-vnni", "", "", "", "1", "", "", timings)


def measurements(
    prepared: Prepared, statistics: Statistics, times: tuple[Mapping[str, Sizes], Costs]
) -> Measurements:
    """Measurements with these times."""
    return Measurements(prepared, statistics, times, Objective.SPEED, decided_again)
