"""Measured times of the nodes of one model, and times of the model in other precisions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.core.saved import Saved
from onnxq.errors import OnnxqError
from onnxq.graph.portable import PortableModel
from onnxq.graph.sizes import Sizes, sizes_of
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Precision
from onnxq.operator.nodes import ONNX_DOMAINS
from onnxq.ort.types_by_run import types_by_run
from onnxq.samples import as_taken, input_specs
from onnxq.samples.made_up import random_batch, with_shapes
from onnxq.times.changed_time import ChangedTime
from onnxq.times.table import Change, Estimate
from onnxq.times.time_model import ChangeTime, Precisions, predicted, walked
from onnxq.times.work import PrecisionOf, moving

IN_FLOAT = (Precision.FLOAT, Precision.WEIGHT_ONLY)
"""Precisions that run the float model's kernels."""

SHARED = {
    Precision.WEIGHT_ONLY: Precision.FLOAT,
    Precision.FLOAT_BETWEEN_QDQ: Precision.FLOAT,
    Precision.INT8: Precision.INT8_FLOAT_OUTPUT,
    Precision.INT8_FLOAT_OUTPUT: Precision.INT8,
}
"""Precisions that run the kernel of another one, or nearly, where they were not measured."""
FEW = 8
"""Share of the nodes, as one in so many, up to which changes are looked at alone; chosen."""


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """Times of one node.

    Attributes:
        ns: name of a precision -> nanoseconds on one thread, conversions not counted; of float, in
            the float model. A node that runs inside of another one's kernel takes 0.
        around: name of a precision -> nanoseconds of conversions and changes of layout that it
            needed in the model in which the precision was measured.
        behind: name of the precision of the node ahead -> nanoseconds of this one in float, in
            models that onnxq made: what ONNX Runtime fuses depends on it. 0: the node ahead
            computes this one too.
    """

    ns: Mapping[str, float] = field(hash=False)
    around: Mapping[str, float] = field(default_factory=dict, hash=False)
    behind: Mapping[str, float] = field(default_factory=dict, hash=False)

    def of(self, precision: Precision) -> float | None:
        """Nanoseconds in that precision; None: it was not measured."""
        for each in (precision, SHARED.get(precision)):
            if each is not None and each.value in self.ns:
                return self.ns[each.value]
        return None

    def of_float(self, ahead: Precision) -> float:
        """Nanoseconds in float behind a node of that precision."""
        known = self.behind.get(ahead.value)
        return (self.of(Precision.FLOAT) or 0.0) if known is None else known


@dataclass(frozen=True)
class Times(Saved):
    """Times of a model on one machine, one thread.

    Attributes:
        source: where they come from: the machine and the runtime, or a table of costs.
        shapes: input name -> shape of the sample that they were measured on; of other values, too,
            whose sizes only a run tells.
        others: row -> nanoseconds of the float model that no node of it stands for, "run" (what a
            run takes whatever its nodes are) among them.
        float_ns: whole runs of the float model: the sum of its nodes, conversions and others.
        notes: models that were to be measured and cannot be made, and why.
    """

    FORMAT: ClassVar[str] = "onnxq times 1"
    NOUN: ClassVar[str] = "times"
    ANEW: ClassVar[str] = "Measure them again, with `onnxq tune` and a new journal."

    source: str
    shapes: Mapping[str, tuple[int, ...]] = field(hash=False)
    nodes: Mapping[str, NodeTimes] = field(hash=False)
    changes: Mapping[str, ChangeTime] = field(hash=False)
    others: Mapping[str, float] = field(hash=False)
    float_ns: float
    notes: tuple[str, ...] = ()

    def of(self, nodes: tuple[str, ...], precision: Precision) -> float | None:
        """Nanoseconds of nodes in that precision; float where one lacks it; None: not measured."""
        known = [self.nodes[name] for name in nodes if name in self.nodes]
        if not any(each.of(precision) is not None for each in known):
            return None
        found = [each.of(precision) for each in known]
        floats = [each.of(Precision.FLOAT) for each in known]
        return sum(
            (ns if ns is not None else plain) or 0.0
            for ns, plain in zip(found, floats, strict=True)
        )

    def by_precision(self, nodes: tuple[str, ...]) -> dict[Precision, float]:
        """Precision -> nanoseconds of these nodes, for the precisions that one was measured in."""
        measured = {p for name in nodes if name in self.nodes for p in self.nodes[name].ns}
        found = {p: self.of(nodes, p) for p in Precision if p.value in measured}
        return {p: ns for p, ns in found.items() if ns is not None}


def precision_ahead(node: ir.Node, precision_of: PrecisionOf) -> Precision:
    """Precision of the first node ahead that computes in integers; FLOAT where none does."""
    makers = (value.producer() for value in moving(node))
    found = (precision_of(maker) for maker in makers if maker is not None)
    return next((p for p in found if p is not None and p not in IN_FLOAT), Precision.FLOAT)


class TimeModel:
    """Predicted times of one model from those of its own nodes; a `TimeSource`.

        time(precisions) = sum over nodes of their time in their precision
                    + sum over tensors of the changes between their producer and their readers
                    + what belongs to no node

    Args:
        times: of its nodes.
        model: the float model, as prepared. Nodes in bodies take their own conversions along.
    """

    def __init__(self, times: Times, model: ir.Model) -> None:
        self.times = times
        self._model = model
        self._sizes: Mapping[str, Sizes] = every_size(model, times.shapes)
        self._others = sum(times.others.values())
        self._nodes = {node_name(node): node for node in model.graph}
        self._inner = {n: each for n, each in times.nodes.items() if n not in self._nodes}
        self._last: tuple[Precisions, float, ChangedTime] | None = None  # precisions, their ns

    def __reduce__(self) -> tuple[Callable[..., TimeModel], tuple[object, ...]]:
        """Pickles with the bytes of its model, whose nodes may hold tensors that are computed."""
        return _restored, (self.times, PortableModel.of(self._model, self._model))

    @property
    def target(self) -> str:
        """Machine that they were measured on, in words."""
        return self.times.source

    @property
    def run_ns(self) -> float:
        """Time that no node tells apart: none, since these are the model's own nodes."""
        return 0.0

    def ratio(self, precisions: Precisions) -> float | None:
        """Predicted time over the float model's; None where it has no time at all."""
        return self.ns(precisions) / self.times.float_ns if self.times.float_ns > 0 else None

    def ns(self, precisions: Precisions) -> float:
        """Predicted nanoseconds of one run; arguments as of `ratio`."""
        inner = sum(_within(*each, precisions) for each in self._inner.items())
        return self._others + inner + self._outer_ns(precisions)

    def _outer_ns(self, precisions: Precisions) -> float:
        """Nanoseconds of the main graph, to rounding: from the last walk if little is another."""

        def precision_of(node: ir.Node) -> Precision | None:
            return precisions.get(node_name(node), Precision.FLOAT)

        if self._last is not None:
            last, last_ns, changed_time = self._last
            names = {**last, **precisions}
            changed = [
                self._nodes[name]
                for name in names
                if last.get(name, Precision.FLOAT) is not precisions.get(name, Precision.FLOAT)
                and name in self._nodes
            ]
            if len(changed) * FEW <= len(self._nodes):
                return last_ns + changed_time.ns(changed, precision_of)
        found = walked(self._model, precisions, self._sizes, self)
        ns = predicted(self._model, found, self).ns
        self._last = dict(precisions), ns, ChangedTime(self._model, found, self)
        return ns

    def of_node(
        self,
        node: ir.Node,
        precision: Precision,
        precision_of: PrecisionOf,
        sizes: Mapping[str, Sizes],
    ) -> tuple[Estimate, ...] | None:
        """Time in that precision; else in float, with conversions if it reads integers."""
        known = self.times.nodes.get(node_name(node))
        if known is None:
            return None
        if precision in IN_FLOAT:
            return (Estimate(known.of_float(precision_ahead(node, precision_of)), 0.0),)
        found = known.of(precision)
        if found is not None:
            return (Estimate(found, 0.0),)
        floats = Estimate(known.of(Precision.FLOAT) or 0.0, 0.0)
        if precision is not Precision.INT8:
            return (floats,)
        changes = [(Change.DEQUANTIZE, value) for value in moving(node)]
        changes += [(Change.QUANTIZE, value) for value in node.outputs]
        shapes = [(change, sizes.get(value_name(value))) for change, value in changes]
        took = [self.change(c, math.prod(shape)) for c, shape in shapes if shape is not None]
        return (floats, *(each for each in took if each is not None))

    def change(self, change: Change, elements: int) -> Estimate | None:
        """Time of changing a tensor of so many elements; None: not measured."""
        time = self.times.changes.get(change.value)
        return None if time is None else Estimate(time.ns(elements), 0.0)


def _within(name: str, known: NodeTimes, precisions: Precisions) -> float:
    """Time of a node in a body, with the conversions that it needed where it was measured."""
    precision = precisions.get(name, Precision.FLOAT)
    if precision is None:
        return 0.0
    measured = precision if known.of(precision) is not None else Precision.FLOAT
    return (known.of(measured) or 0.0) + known.around.get(measured.value, 0.0)


def _restored(times: Times, model: PortableModel) -> TimeModel:
    """The TimeModel whose parts `__reduce__` gave."""
    return TimeModel(times, model.load())


# --- Sizes of the values of a model: a run tells those that inference does not find


def known_shapes(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Sizes]:
    """Shapes from which `every_size` finds all others: {value name: shape}, inputs first.

    Behind operators of other domains inference finds nothing, and a time that goes by sizes would
    be none there. So a run tells what is lacking, where something is.
    """
    inputs = {name: tuple(map(int, x.shape)) for name, x in feeds.items()}
    known = sizes_of(model, inputs)
    names = [str(value.name) for node in model.graph for value in node.outputs if value.name]
    lacking = [name for name in names if name not in known]
    if not lacking:
        return inputs
    told = types_by_run(model, lacking, as_taken(feeds, input_specs(model)))
    return inputs | {name: shape for name, (_, shape) in told.items()}


def every_size(model: ir.Model, shapes: Mapping[str, Sizes]) -> dict[str, Sizes]:
    """Sizes of all values: those that inference finds, and those that a run told."""
    return {**shapes, **sizes_of(model, shapes)}


def sizes_for(model: ir.Model, shapes: Mapping[str, Sizes]) -> Mapping[str, Sizes]:
    """Finds sizes of all values: by inference, and by a run on made-up inputs where it stops.

    It stops at operators of other domains. What depends on values, such as boxes, is not known.
    """
    known, key = _KNOWN.setdefault(model, {}), tuple(sorted(shapes.items()))
    if key not in known:
        known[key], told = sizes_of(model, shapes), {}
        if not all(node.domain in ONNX_DOMAINS for node in model.graph):
            with contextlib.suppress(OnnxqError):  # the model does not run on made-up inputs
                feeds = random_batch(with_shapes(input_specs(model), shapes))
                told = known_shapes(model, feeds)
        known[key] = {n: size for n, size in told.items() if all(size)} | known[key]
    return known[key]


_KNOWN: WeakKeyDictionary[ir.Model, dict[object, dict[str, Sizes]]] = WeakKeyDictionary()
