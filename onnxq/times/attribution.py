"""Attribution of the nodes that ONNX Runtime runs to the nodes of the float model.

It renames what it fuses and moves: a node is found by its name in the file, else by the tensor that
it is named after or gives, else by the node whose lowering it is of ("gelu" of "gelu_table").
Conversions and changes of layout belong to the node that needs them:

    float node -> QuantizeLinear -> integer node       the reader, which wants integers
    integer node -> DequantizeLinear -> float node     the producer, which gives integers
    in between where both have precision INTEGER            the one of the two that computes in
    float ReorderInput, ReorderOutput, Transpose of layouts  the convolution beside it

What none of this tells is a row of its own, by its operator; nothing is dropped.
"""

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxq.graph.walk import node_name, stem_among, walk
from onnxq.operator import Precision
from onnxq.ort.layouts import CHANGES_LAYOUT, CONVOLUTION
from onnxq.ort.node_kinds import original_name
from onnxq.ort.runtime import open_session
from onnxq.qdq.read import DEQUANTIZE, QUANTIZE
from onnxq.samples import as_taken, input_specs
from onnxq.samples.inputs import Batch
from onnxq.times.time_model import READS_INTEGERS
from onnxq.times.timed_runs import Profiled, WholeTime, one_row, paired_sessions, profiled

_BLOCKS = re.compile(r"_nchwc(_token_\d+)?$")
_STEPS = 4
"""Nodes behind a convolution that are computed with it: a sum, an activation, a bound."""


class TimePart(enum.Enum):
    """Part that a node of ONNX Runtime's has in the time of one of the float model."""

    KERNEL = "kernel"
    """The node is computed, or converted within."""
    AROUND = "around"
    """Conversion or change of layout between the node and a neighbour of another form."""
    OTHER = "other"
    """Nothing that any node is known to need."""


@dataclass(frozen=True, slots=True)
class TimeOwner:
    """Where the time of a node of ONNX Runtime's belongs.

    Attributes:
        name: of a node of the float model; of OTHER, its operator.
    """

    name: str
    part: TimePart


def owners(
    source: ir.Model, optimized: ir.Model, precisions: Mapping[str, Precision | None]
) -> dict[str, TimeOwner]:
    """Name of each node in the profile of a model -> whose time it is."""
    return _Attribution(source, optimized, precisions).owners()


class _Attribution:
    """One optimized graph beside the float model."""

    def __init__(
        self, source: ir.Model, optimized: ir.Model, precisions: Mapping[str, Precision | None]
    ) -> None:
        self._nodes = {node_name(node): node for node, _ in walk(source.graph)}
        self._makers = {
            value.name: node
            for node in self._nodes.values()
            for value in node.outputs
            if value.name
        }
        self._optimized = [node for node, _ in walk(optimized.graph)]
        self._precisions = precisions
        self._kernels: dict[ir.Node, str] = {}

    def owners(self) -> dict[str, TimeOwner]:
        waiting = []
        for node in self._optimized:
            name = self._kernel_of(node)
            if name:
                self._kernels[node] = name
            else:
                waiting.append(node)
        found = {node: TimeOwner(name, TimePart.KERNEL) for node, name in self._kernels.items()}
        found |= {node: self._between(node) for node in waiting}
        names = _profiled_names(self._optimized)
        return {names[node]: owner for node, owner in found.items()}

    def _kernel_of(self, node: ir.Node) -> str:
        """The float node that it computes; the empty string: it converts, or nobody knows."""
        name = original_name(node.name or "")
        if _BLOCKS.search(node.name or ""):
            name = _BLOCKS.sub("", node.name or "")
            return self._made(name, node.op_type) or self._given(node)
        if name in self._nodes:
            return name
        if node.op_type in (QUANTIZE, DEQUANTIZE, *CHANGES_LAYOUT):
            return ""
        return stem_among(name, self._nodes) or self._made(name, node.op_type) or self._given(node)

    def _made(self, value: str, op_type: str) -> str:
        """The node with that operator which makes a tensor, or is computed ahead of its maker."""
        maker = self._makers.get(value)
        if maker is None:
            return ""
        ahead = [maker]
        for _ in range(_STEPS):
            for each in ahead:
                if each.op_type == op_type:
                    return node_name(each)
            ahead = [p for each in ahead for p in each.predecessors()]
        return node_name(maker)

    def _given(self, node: ir.Node) -> str:
        """The node that makes a tensor of the name of a result."""
        for value in node.outputs:
            if found := self._made(value.name or "", node.op_type):
                return found
        return ""

    def _between(self, node: ir.Node) -> TimeOwner:
        """Owner of a conversion or a change of layout, or of what nobody knows."""
        producers = list(self._beside(node, ir.Node.predecessors))
        readers = list(self._beside(node, ir.Node.successors))
        if node.op_type == QUANTIZE:
            if producers and self._precision(producers[0]) is Precision.INT8:
                # it computed in float, between integers
                return TimeOwner(producers[0], TimePart.KERNEL)
            needing = [*readers, *producers]
        elif node.op_type == DEQUANTIZE:
            if readers and self._precision(readers[0]) in READS_INTEGERS:
                return TimeOwner(readers[0], TimePart.KERNEL)
            needing = [*producers, *readers]
        elif node.op_type in CHANGES_LAYOUT:
            into = [*readers, *producers]
            needing = sorted(into, key=lambda name: self._nodes[name].op_type != CONVOLUTION)
        else:
            return TimeOwner(node.op_type, TimePart.OTHER)
        if not needing:
            return TimeOwner(node.op_type, TimePart.OTHER)
        return TimeOwner(needing[0], TimePart.AROUND)

    def _beside(self, node: ir.Node, step: Callable[[ir.Node], Sequence[ir.Node]]) -> Iterator[str]:
        """Names of the float nodes next to a node, behind other conversions."""
        waiting, seen = [node], {node}
        while waiting:
            for other in step(waiting.pop()):
                if other in self._kernels:
                    yield self._kernels[other]
                elif other not in seen:
                    seen.add(other)
                    waiting.append(other)

    def _precision(self, name: str) -> Precision | None:
        return self._precisions.get(name, Precision.FLOAT)


def _profiled_names(nodes: list[ir.Node]) -> dict[ir.Node, str]:
    """Node -> its name in the profile; those without one follow the order of their operator.

    The profiler calls them by operator and index; `with_unnamed` numbers them in the same order.
    """
    counts: dict[str, int] = defaultdict(int)
    names = {}
    for node in nodes:
        names[node] = node.name or unnamed(node.op_type, counts[node.op_type])
        counts[node.op_type] += not node.name
    return names


def unnamed(op_type: str, number: int) -> str:
    """Name for the n-th node of an operator that has none."""
    return f"<{op_type} {number}>"


def with_unnamed(ns: Mapping[str, float], known: Mapping[str, TimeOwner]) -> dict[str, float]:
    """The times by the names that `owners` uses: "Mul_68" of the profile is "<Mul 0>"."""
    counts: dict[str, int] = defaultdict(int)
    found = {name: time for name, time in ns.items() if name in known}
    others = [(_index(name), name) for name in ns if name not in known]
    for _, name in sorted(others):
        op_type = name.rpartition("_")[0]
        found[unnamed(op_type, counts[op_type])] = ns[name]
        counts[op_type] += 1
    return found


def _index(name: str) -> int:
    text = name.rpartition("_")[2]
    return int(text) if text.isdecimal() else 0


def times_by_owner(
    source: ir.Model, run: Profiled, precisions: Mapping[str, Precision | None]
) -> dict[TimeOwner, float]:
    """Nanoseconds of the float model's nodes, and of what belongs to none, in a run."""
    known = owners(source, run.optimized, precisions)
    sums: dict[TimeOwner, float] = defaultdict(float)
    for name, ns in with_unnamed(run.ns, known).items():
        sums[known.get(name, TimeOwner(name, TimePart.OTHER))] += ns
    return sums


# --- Times of both models' nodes, paired: ONNX Runtime's profiler, one thread, in turns


NS_IN_US = 1e3


@dataclass(frozen=True, slots=True)
class PairedNodeTimes:
    """Microseconds of one run of both models.

    Attributes:
        nodes: node of the float model -> (in float, quantized); conversions that a node needs are
            among its own time.
        others: operator -> likewise, of what belongs to no node.
        whole: of whole runs, without the profiler.
        speed: of whole runs in several pairs of sessions, and the low and high end of an interval
            of 95%; 2: twice as fast.
    """

    nodes: Mapping[str, tuple[float, float]]
    others: Mapping[str, tuple[float, float]]
    whole: tuple[float, float]
    speed: tuple[float, float, float]


def paired_node_times(
    source: ir.Model, target: ir.Model, precisions: Mapping[str, Precision | None], batch: Batch
) -> PairedNodeTimes:
    """Times on the first row of a batch, or on all of it where the model's batch is static."""
    row = one_row(source, input_specs(source), batch)
    runs = profiled([source, target], row)
    sums = [times_by_owner(source, run, of) for run, of in zip(runs, ({}, precisions), strict=True)]
    nodes = {str(node.name): (0.0, 0.0) for node in source.graph.all_nodes()}
    others: dict[str, tuple[float, float]] = {}
    for owner in sorted({*sums[0], *sums[1]}, key=lambda owner: owner.name):
        into = others if owner.part is TimePart.OTHER else nodes
        ours, theirs = into.get(owner.name, (0.0, 0.0))
        took = [each.get(owner, 0.0) / NS_IN_US for each in sums]
        into[owner.name] = ours + took[0], theirs + took[1]
    openers = partial(open_session, source, threads=1), partial(open_session, target, threads=1)
    feeds = as_taken(row, input_specs(source)), as_taken(row, input_specs(target))
    pairs = paired_sessions(openers, feeds)
    found = WholeTime.of_sessions(pairs)
    whole = [1e6 * float(np.median(np.concatenate(side))) for side in zip(*pairs, strict=True)]
    return PairedNodeTimes(
        nodes, others, (whole[0], whole[1]), (found.ratio, found.low, found.high)
    )
