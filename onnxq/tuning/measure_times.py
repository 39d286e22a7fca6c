"""Measures the times of a model's nodes in float and in each precision, on this machine.

The float model and quantized ones run in turns on one thread, with ONNX Runtime's profiler and
without, so that what else the machine does slows all of them alike.
"""

import math
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import first_line
from onnxq.graph.walk import node_name
from onnxq.operator import Precision
from onnxq.ort.version import installed
from onnxq.qconfig import Choice, QConfig, QConfigMapping, onnxq_default_dynamic_qconfig
from onnxq.times import Costs
from onnxq.times.attribution import TimeOwner, TimePart, times_by_owner
from onnxq.times.changed_time import change_times, changes_of
from onnxq.times.model_times import (
    IN_FLOAT,
    NodeTimes,
    TimeModel,
    Times,
    every_size,
    known_shapes,
    precision_ahead,
)
from onnxq.times.time_model import ChangeTime, Precisions, walked
from onnxq.times.timed_runs import check_runs, profiled
from onnxq.tuning.evaluation.evaluations import REFUSALS
from onnxq.tuning.evaluation.evaluator import Evaluator, precisions_of

LEAST_CHANGING = 0.02
"""Share of a run that changes take at least, for it to tell what they cost."""
FLOAT = "float"
RUN = "run"
Sums = Mapping[TimeOwner, float]
"""Node of the float model and part of its time -> nanoseconds."""


@dataclass(frozen=True, eq=False)
class TimedModel:
    """A model to be timed."""

    model: ir.Model
    precisions: Precisions


def measure_times(
    evaluator: Evaluator, mappings: Mapping[str, QConfigMapping] | None = None
) -> Times:
    """Times of the nodes of a model, in float and in the precisions that the mappings give them.

    Args:
        evaluator: makes the models.
        mappings: words for people -> mapping; a node's time in a precision is that in the first
            model in which it has it. None: those of `telling`. One that gives no model that
            runs is left out, with a note.
    """
    source, feeds = _source(evaluator), evaluator.one_row()
    timed, notes = _to_be_timed(evaluator, mappings or telling(evaluator), feeds)
    return times_of_runs(source, feeds, timed, notes)


def times_of_runs(
    source: ir.Model,
    feeds: Mapping[str, Array],
    timed: Sequence[TimedModel],
    notes: tuple[str, ...] = (),
    seconds: float | None = None,
) -> Times:
    """Times of the nodes of a model, from runs of it and of models made of it.

    `timed`: the float model first, then quantized ones; a node's time in a precision is that in
    the first of them in which it has it.
    `seconds`: CPU seconds that go into the runs; None: as `profiled` has it.
    """
    runs = profiled([each.model for each in timed], feeds, seconds)
    whole = [each.whole_ns for each in runs]
    sums = [
        times_by_owner(source, run, each.precisions) for each, run in zip(timed, runs, strict=True)
    ]
    found = _Found(source, sums[0])
    for each, sum_of in zip(timed[1:], sums[1:], strict=True):
        found.add(each.precisions, sum_of)
    others = {by.name: took for by, took in sums[0].items() if by.part is TimePart.OTHER}
    others[RUN] = max(whole[0] - sum(sums[0].values()), 0.0)
    times = Times(
        here(), known_shapes(source, feeds), found.nodes(), change_times(), others, whole[0], notes
    )
    made = zip(timed[1:], whole[1:], strict=True)
    return _fitted(times, source, [(each.precisions, ns) for each, ns in made])


def _fitted(times: Times, source: ir.Model, whole: Sequence[tuple[Precisions, float]]) -> Times:
    """The times with changes at the price that whole runs show, at most at their own."""
    with_changes, without = (TimeModel(each, source) for each in (times, _with(times, 0.0)))
    shares = []
    for precisions, ns in whole:
        nodes = without.ns(precisions)
        changing = with_changes.ns(precisions) - nodes
        if changing > LEAST_CHANGING * ns:
            shares.append((ns - nodes) / changing)
    return _with(times, min(max(float(np.median(shares)), 0.0), 1.0)) if shares else times


def _with(times: Times, share: float) -> Times:
    """The times with changes that take this share of their time."""
    changes = {
        name: ChangeTime(each.fixed_ns * share, each.per_element_ns * share)
        for name, each in times.changes.items()
    }
    return replace(times, changes=changes)


def _to_be_timed(
    evaluator: Evaluator, mappings: Mapping[str, QConfigMapping], feeds: Mapping[str, Array]
) -> tuple[list[TimedModel], tuple[str, ...]]:
    """(the float model, and those of the mappings that run; notes on the others)."""
    timed, notes = [TimedModel(evaluator.subject.canonical.model, {})], []
    for words, mapping in mappings.items():
        try:
            made = evaluator.quantized(mapping)
            check_runs(made.model, feeds)
        except REFUSALS as error:
            notes.append(
                f"no times of the model {words}, which cannot be made: {first_line(error)}"
            )
            continue
        timed.append(TimedModel(made.model, precisions_of(made.plan)))
    return timed, tuple(notes)


class _Found:
    """Times of nodes in the precisions met so far; the first model with a precision counts."""

    def __init__(self, source: ir.Model, sums: Sums) -> None:
        self._source = source
        self._nodes = [str(node.name) for node in source.graph.all_nodes()]
        self._ns = {n: {FLOAT: _ns(sums, n, TimePart.KERNEL)} for n in self._nodes}
        self._around = {n: {FLOAT: _ns(sums, n, TimePart.AROUND)} for n in self._nodes}
        self._behind: dict[str, dict[str, float]] = defaultdict(dict)

    def add(self, precisions: Precisions, sums: Sums) -> None:
        """Adds a quantized model."""
        for name in self._nodes:
            precision = precisions.get(name, Precision.FLOAT)
            if precision is not None and precision not in IN_FLOAT:
                self._ns[name].setdefault(precision.value, _ns(sums, name, TimePart.KERNEL))
                self._around[name].setdefault(precision.value, _ns(sums, name, TimePart.AROUND))

        def form_of(node: ir.Node) -> Precision | None:
            return precisions.get(node_name(node), Precision.FLOAT)

        for node in self._source.graph:
            name = str(node.name)
            if precisions.get(name, Precision.FLOAT) in IN_FLOAT:
                ahead = precision_ahead(node, form_of).value
                self._behind[name].setdefault(ahead, _ns(sums, name, TimePart.KERNEL))

    def nodes(self) -> dict[str, NodeTimes]:
        """Node name -> its times."""
        return {
            name: NodeTimes(ns, self._around[name], self._behind[name])
            for name, ns in self._ns.items()
        }


def _source(evaluator: Evaluator) -> ir.Model:
    """The float model with the nodes that plans name."""
    return evaluator.subject.prepared(evaluator.subject.default).model


def telling(evaluator: Evaluator) -> dict[str, QConfigMapping]:
    """Mappings, named in words, that give nodes every precision between them."""
    default = evaluator.subject.default.without_precisions()
    overall = default.global_qconfig
    found = {"in all integers": default.set_choice(Choice.ALL_INTEGERS)}
    if isinstance(overall, QConfig):
        found["all in float"] = QConfigMapping(replace(overall, precision=Precision.FLOAT))
        results = replace(overall, precision=Precision.INT8_FLOAT_OUTPUT)
        found["with float results"] = QConfigMapping(results, choice=Choice.ALL_INTEGERS)
    # named, so that slow ones are, too
    dynamic = replace(onnxq_default_dynamic_qconfig, precision=Precision.DYNAMIC_INT8)
    found["quantized dynamically"] = QConfigMapping(dynamic)
    return {**found, "by default": default}


def times_of(evaluator: Evaluator, costs: Costs) -> Times:
    """Times of the same kind from a table of costs, for a machine that is not this one."""
    model = _source(evaluator)
    shapes = known_shapes(model, evaluator.one_row())
    sizes = every_size(model, shapes)
    ns: dict[str, dict[str, float]] = defaultdict(dict)
    for precision in Precision:
        precisions = {str(node.name): precision for node in model.graph}
        for node, own in walked(model, precisions, sizes, costs).own.items():
            if own is not None and math.isfinite(total := sum(each.ns for each in own)):
                ns[str(node.name)][precision.value] = total
    nodes = {name: NodeTimes(found) for name, found in ns.items()}
    source = f"table of {costs.target}, {costs.machine}"
    times = Times(source, shapes, nodes, changes_of(costs), {}, 1.0)
    return replace(times, float_ns=TimeModel(times, model).ns({}))


def here() -> str:
    """This machine and runtime, in words."""
    major, minor = installed()
    machine = platform.processor() or platform.machine()
    return f"measured on {machine}, onnxruntime {major}.{minor}, 1 thread"


def _ns(sums: Sums, name: str, part: TimePart) -> float:
    return sums.get(TimeOwner(name, part), 0.0)
