"""Times of both models' nodes, paired: ONNX Runtime's profiler, one thread, in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.samples import input_specs
from onnxq.times.attribution import TimePart, times_by_owner
from onnxq.times.timed_runs import WholeTime, one_row, profiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.operator import Precision
    from onnxq.samples.inputs import Batch

NS_IN_US = 1e3


@dataclass(frozen=True, slots=True)
class PairedNodeTimes:
    """Microseconds of one run of both models.

    Attributes:
        nodes: node of the float model -> (in float, quantized); conversions that a node needs are
            among its own time.
        others: operator -> likewise, of what belongs to no node.
        whole: of whole runs, without the profiler.
        speed: of whole runs: median, low and high end of an interval of 95%; 2: twice as fast.
    """

    nodes: Mapping[str, tuple[float, float]]
    others: Mapping[str, tuple[float, float]]
    whole: tuple[float, float]
    speed: tuple[float, float, float]


def paired_node_times(
    source: ir.Model,
    target: ir.Model,
    forms: Mapping[str, Precision | None],
    batch: Batch,
) -> PairedNodeTimes:
    """Times on the first row of a batch, or on all of it where the model's batch is static.

    Args:
        source: the float model, canonical.
        target: the quantized one.
        forms: that it gives the nodes.
        batch: to run.

    Raises:
        ModelError: ONNX Runtime does not open a model.
        CalibrationError: it does not run on the batch.
    """
    runs = profiled([source, target], one_row(source, input_specs(source), batch))
    sums = [times_by_owner(source, run, of) for run, of in zip(runs, ({}, forms), strict=True)]
    nodes = {str(node.name): (0.0, 0.0) for node in source.graph.all_nodes()}
    others: dict[str, tuple[float, float]] = {}
    for owner in sorted({*sums[0], *sums[1]}, key=lambda owner: owner.name):
        into = others if owner.part is TimePart.OTHER else nodes
        ours, theirs = into.get(owner.name, (0.0, 0.0))
        took = [each.get(owner, 0.0) / NS_IN_US for each in sums]
        into[owner.name] = ours + took[0], theirs + took[1]
    found = WholeTime.of(runs[0].rounds_s, runs[1].rounds_s)
    return PairedNodeTimes(
        nodes,
        others,
        (runs[0].whole_ns / NS_IN_US, runs[1].whole_ns / NS_IN_US),
        (found.ratio, found.low, found.high),
    )
