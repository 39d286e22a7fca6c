"""Times of both models' nodes, paired: ONNX Runtime's profiler, one thread, in turns."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError
from onnxq.ort.profile import without_writing
from onnxq.ort.runtime import open_session
from onnxq.samples import as_taken, input_specs
from onnxq.samples.inputs import has_dynamic_batch
from onnxq.tuning.evaluating.timed_runs import profiled
from onnxq.tuning.search.finalists import WholeTime
from onnxq.tuning.timing.attribution import TimeOwner, TimePart, owners, with_unnamed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.operator import Precision
    from onnxq.samples.inputs import Batch
    from onnxq.tuning.evaluating.timed_runs import Profiled

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
    runs = profiled([source, target], _one_row(source, batch))
    sums = [_sums(source, run, of) for run, of in zip(runs, ({}, forms), strict=True)]
    names = [str(node.name) for node in source.graph.all_nodes()]
    nodes = {
        name: (sums[0].get((True, name), 0.0), sums[1].get((True, name), 0.0)) for name in names
    }
    ops = sorted({name for found in sums for is_node, name in found if not is_node})
    others = {op: (sums[0].get((False, op), 0.0), sums[1].get((False, op), 0.0)) for op in ops}
    found = WholeTime.of(runs[0].rounds_s, runs[1].rounds_s)
    return PairedNodeTimes(
        nodes,
        others,
        (runs[0].whole_ns / NS_IN_US, runs[1].whole_ns / NS_IN_US),
        (found.ratio, found.low, found.high),
    )


def _one_row(source: ir.Model, batch: Batch) -> Batch:
    """One sample, as a model is run where it is used; the batch where that does not run."""
    specs = [spec for spec in input_specs(source) if spec.name in batch]
    if not has_dynamic_batch(specs):
        return batch
    one = {name: x[:1] for name, x in batch.items()}
    with open_session(source, threads=1) as session:
        try:
            session.run(as_taken(one, input_specs(source)))
        except CalibrationError:
            return batch
    return one


def _sums(
    source: ir.Model, run: Profiled, forms: Mapping[str, Precision | None]
) -> dict[tuple[bool, str], float]:
    """(whether it is a node of the float model, its name or an operator) -> microseconds."""
    known = owners(source, run.optimized, forms)
    sums: dict[tuple[bool, str], float] = defaultdict(float)
    for name, ns in with_unnamed(without_writing(run.nodes, run.whole_ns), known).items():
        owner = known.get(name, TimeOwner(name, TimePart.OTHER))
        sums[owner.part is not TimePart.OTHER, owner.name] += ns / NS_IN_US
    return sums
