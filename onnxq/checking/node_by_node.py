"""Each integer node of ONNX Runtime's optimized graph beside its kernel, on the same inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq import reference
from onnxq.checking.cross_findings import (
    FloatNode,
    NodeFinding,
    NotCompared,
    NotReached,
    UncheckedNode,
)
from onnxq.checking.differences import Differences
from onnxq.core.arrays import Array
from onnxq.errors import OnnxqError, UnsupportedError
from onnxq.graph.passes.names import UniqueNames
from onnxq.ort import facts, runtime
from onnxq.ort.expose import Exposed, expose, observable, type_bodies
from onnxq.ort.expose_steps import expose_steps
from onnxq.ort.runtime import NodeKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from onnx.reference.op_run import OpRun

    from onnxq.checking.visible import Inner
    from onnxq.targets.accumulation import Overflows, SaturationMode

Values = dict[str, Array]


@dataclass(slots=True)
class NodeCounts:
    """Differences that were found at a node, in one batch or in many.

    Attributes:
        problem: why it could not be compared; batches behind such a one do not count.
        overflows: sums that this machine's arithmetic changed.
    """

    kernel: str = ""
    reached: int = 0
    integer: bool = False
    problem: str = ""
    overflows: int = 0
    sums: Differences = field(default_factory=Differences)

    def add(self, later: NodeCounts) -> None:
        """Adds those of later batches."""
        if self.problem:
            return
        self.kernel = later.kernel or self.kernel
        self.reached += later.reached
        self.integer |= later.integer
        self.problem = later.problem
        self.overflows += later.overflows
        self.sums.add(later.sums)


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """Counts of all nodes of one graph."""

    saturation_mode: SaturationMode
    keys: tuple[tuple[str, str, str], ...]
    nodes: tuple[NodeCounts, ...]
    instrumented: tuple[str, ...]


@dataclass(slots=True)
class _Node:
    """A node of the optimized graph under comparison.

    Attributes:
        inputs: names of values, "" for absent ones.
        kind: as the graph says it, for nodes that no sample reached.
        hidden: why it can never be compared; empty: it can.
        runner: the kernel; made when it is first needed.
        stepwise: it is in the body of a Loop or Scan, with a value for each step.
    """

    node: ir.Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: NodeKind
    hidden: str = ""
    runner: OpRun | None = None
    stepwise: bool = False
    counts: NodeCounts = field(default_factory=NodeCounts)

    @property
    def key(self) -> tuple[str, str, str]:
        """Name, op type and domain."""
        name = self.node.name or next(filter(None, self.outputs), "")
        return name, self.node.op_type, self.node.domain


class NodeByNode:
    """The optimized graph with every inner tensor visible, and what was found at its nodes."""

    def __init__(self, target: ir.Model, saturation_mode: SaturationMode) -> None:
        self._saturation_mode = saturation_mode
        self._heard: list[int] = []
        self._classes = reference.on_machine(saturation_mode, self._hear)
        optimized = runtime.optimized_graph(target)
        UniqueNames()(optimized)
        type_bodies(optimized)
        visible = expose(optimized, observable(optimized))
        steps = expose_steps(visible.model, _may_be_integer)
        self._steps = steps.outputs
        self.exposed = Exposed(visible.model, {**visible.outputs, **steps.outputs})
        self.instrumented: dict[str, None] = {}
        self._opsets = dict(optimized.opset_imports)
        self._constants = _constants(optimized)
        uses = runtime.integer_nodes(optimized)
        self._nodes = [
            _Node(node, _value_names(node.inputs), _value_names(node.outputs), use.kind)
            for node, use in zip(optimized.graph.all_nodes(), uses, strict=True)
        ]
        for entry in self._nodes:
            entry.hidden = self._why_hidden(entry, steps.hidden)
            entry.counts.problem = entry.hidden
            entry.stepwise = any(name in self._steps for name in entry.outputs)
        self._last = {name: i for i, entry in enumerate(self._nodes) for name in entry.inputs}

    def _hear(self, _: onnx.NodeProto, found: Overflows) -> None:
        """Takes down sums of the node that runs; from any thread."""
        self._heard.append(int(found.count.sum()))

    def _why_hidden(self, entry: _Node, hidden: Mapping[str, str]) -> str:
        """Why the values of a node in a body cannot be read, or the empty string."""
        for name in (*entry.outputs, *entry.inputs):
            if name in hidden:
                return hidden[name]
        if any(name in self.exposed.outputs for name in entry.outputs):
            return ""
        return "it is in the body of a Loop or Scan, and does not compute on integers"

    def note_instrumented(self, wanted: Values, outputs: Values) -> None:
        """Takes down the outputs that differ where inner tensors are visible."""
        for name, array in wanted.items():
            if not isinstance(array, np.ndarray):
                continue
            sums = Differences()
            sums.update(outputs[name], array)
            if sums.differing:
                self.instrumented[name] = None

    def results(self, inner: dict[str, Inner]) -> dict[tuple[str, str], Array]:
        """(node name, value name) -> integers, in graph order."""
        return {
            (entry.key[0], name): array
            for entry in self._nodes
            if not entry.stepwise
            for name in entry.outputs
            if isinstance(array := inner.get(name), np.ndarray) and _is_integers(array)
        }

    def compare(self, feeds: Mapping[str, Array], inner: dict[str, Inner]) -> None:
        """Runs each integer node's kernel on one batch."""
        for i, entry in enumerate(self._nodes):
            if not entry.counts.problem:
                self._compare_one(entry, feeds, inner)
            for name in (*entry.inputs, *entry.outputs):
                if self._last.get(name, -1) <= i:
                    inner.pop(name, None)

    def _compare_one(
        self, entry: _Node, feeds: Mapping[str, Array], inner: dict[str, Inner]
    ) -> None:
        wanted = [inner.get(name) for name in entry.outputs]
        if all(array is None for array in wanted):
            return  # a branch that did not run
        steps = max(len(y) for y in wanted if y is not None) if entry.stepwise else 1
        inputs = [self._input(name, feeds, inner) for name in entry.inputs]
        for step in range(steps):
            theirs = [self._at(n, y, step) for n, y in zip(entry.outputs, wanted, strict=True)]
            if entry.stepwise and all(y is None or y.shape == (0,) for y in theirs):
                continue  # another branch ran in this step
            entry.counts.reached += 1
            if not facts.named(entry.node.op_type).on_data:
                return
            xs = [self._at(n, x, step) for n, x in zip(entry.inputs, inputs, strict=True)]
            self._compare_arrays(entry, xs, theirs)

    def _at(self, name: str, value: Inner | None, step: int) -> Array | None:
        """One step of a value in a body; a value from around it as it is."""
        if name in self._steps and value is not None:
            return np.asarray(value[step])
        return None if value is None else np.asarray(value)

    def _compare_arrays(
        self, entry: _Node, inputs: Sequence[Array | None], wanted: Sequence[Array | None]
    ) -> None:
        converts = facts.named(
            entry.node.op_type
        ).converts_integers  # int32 biases have no type of integers
        if not converts and not any(_is_integers(x) for x in (*inputs, *wanted)):
            return
        entry.counts.integer = True
        if entry.counts.problem:
            return
        try:
            got, bound = self._run(entry, inputs)
        except OnnxqError as error:
            entry.counts.problem = str(error)
            return
        for slot, theirs in enumerate(wanted):
            if theirs is not None:
                ours = got[slot] if slot < len(got) else None
                entry.counts.sums.update(ours, theirs, bound if slot == 0 else None)

    def _run(
        self, entry: _Node, inputs: Sequence[Array | None]
    ) -> tuple[tuple[Array, ...], Array | None]:
        if entry.runner is None:
            entry.runner = reference.node_runner(
                ir.to_proto(entry.node), self._opsets, inputs, self._classes
            )
        runner = entry.runner
        ours = isinstance(runner, reference.KernelOp) and runner.uses_kernel(inputs)
        entry.counts.kernel = "onnxq" if ours else "onnx.reference"
        self._heard.clear()
        outputs = reference.run_node(runner, inputs, {})
        entry.counts.overflows += sum(self._heard)
        bound = runner.bound(inputs) if ours and isinstance(runner, reference.KernelOp) else None
        return outputs, bound

    def _input(
        self, name: str, feeds: Mapping[str, Array], inner: dict[str, Inner]
    ) -> Inner | None:
        for source in (self._constants, feeds):
            if name in source:
                return source[name]
        return inner.get(name)

    def take(self) -> GraphCounts:
        """Counts since the last call, which are forgotten here."""
        found = GraphCounts(
            self._saturation_mode,
            tuple(entry.key for entry in self._nodes),
            tuple(entry.counts for entry in self._nodes),
            tuple(self.instrumented),
        )
        self.instrumented = {}
        for entry in self._nodes:
            entry.counts = NodeCounts(problem=entry.hidden)
        return found

    def add(self, later: GraphCounts) -> None:
        """Adds the counts of later batches, of the same graph elsewhere."""
        keys = tuple(entry.key for entry in self._nodes)
        if (later.saturation_mode, later.keys) != (self._saturation_mode, keys):
            raise UnsupportedError(
                "ONNX Runtime makes another graph of the model on a worker than here, or adds "
                "products otherwise: its version, or the machine's instruction set, is another "
                "one. Use workers like this machine, or run without workers (executor=None)."
            )
        self.instrumented |= dict.fromkeys(later.instrumented)
        for entry, counts in zip(self._nodes, later.nodes, strict=True):
            entry.counts.add(counts)

    def findings(self) -> tuple[NodeFinding, ...]:
        """Nodes that were compared, if only on the batches before one that could not be."""
        return tuple(
            NodeFinding(
                *entry.key,
                entry.counts.kernel,
                entry.counts.sums.elements,
                entry.counts.sums.differing,
                entry.counts.sums.largest,
                entry.counts.sums.unit,
                entry.counts.sums.problem,
                entry.counts.overflows,
            )
            for entry in self._nodes
            if entry.counts.integer and (entry.counts.sums.elements or not entry.counts.problem)
        )

    def unchecked(self) -> tuple[UncheckedNode, ...]:
        """Integer nodes that were not."""
        return tuple(
            UncheckedNode(*entry.key, NotCompared(problem) if problem else NotReached())
            for entry in self._nodes
            if _counts_as_integer(entry)
            and ((problem := entry.counts.problem) or not entry.counts.reached)
        )

    def floats(self) -> tuple[FloatNode, ...]:
        """The others."""
        return tuple(
            FloatNode(*entry.key)
            for entry in self._nodes
            if not entry.counts.integer
            and not (_counts_as_integer(entry) and not entry.counts.reached)
        )


def _may_be_integer(node: ir.Node) -> bool:
    """Whether a node in a body works on integers, or makes or reads them."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    integers = {value.dtype.name.lower() for value in values if value.dtype is not None}
    return facts.named(node.op_type).on_data and bool(integers & reference.INTEGER_DTYPES)


def _counts_as_integer(entry: _Node) -> bool:
    """By what was seen; a node that no sample reached, by what the graph says."""
    if entry.counts.reached:
        return entry.counts.integer
    converts = facts.named(entry.node.op_type).converts_integers
    return converts or entry.kind is NodeKind.INTEGER


def _is_integers(x: object) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.name in reference.INTEGER_DTYPES


def _value_names(values: Sequence[ir.Value | None]) -> tuple[str, ...]:
    return tuple("" if value is None else value.name or "" for value in values)


def _constants(model: ir.Model) -> Values:
    """Initializers of all graphs; names are unique."""
    return {
        name: value.const_value.numpy()
        for graph in model.graphs()
        for name, value in graph.initializers.items()
        if value.const_value is not None
    }
