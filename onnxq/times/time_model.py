"""Time of a model in given precisions: its nodes, conversions and changes of layout."""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import onnx_ir as ir

from onnxq.graph.sizes import Sizes
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Precision
from onnxq.operator.nodes import is_constant
from onnxq.ort.layouts import BLOCK, CHANNELS_LAST, CONVOLUTION, FEW_CHANNELS, IN_BLOCKS
from onnxq.times.table import Change, Estimate
from onnxq.times.work import PrecisionOf, moving

# --- Layouts of the tensors around a node, as its precision and its neighbours decide them


IMAGE_RANK = 4


class Layout(enum.Enum):
    """Order of a tensor's numbers in memory."""

    PLAIN = "plain"
    """The model's own order: (N, C, H, W)."""
    BLOCKED = "blocked"
    """Blocks of channels, as float convolutions run."""
    CHANNELS_LAST = "channels last"
    """(N, H, W, C), as integer convolutions run."""


def layout_of(
    node: ir.Node, precision: Precision, layouts: Sequence[Layout], sizes: Mapping[str, Sizes]
) -> tuple[Layout, Layout]:
    """(layout that the node reads, layout that it writes)."""
    if node.op_type == CONVOLUTION and is_constant(node, 1):
        weight = sizes.get(value_name(node.inputs[1]) if node.inputs[1] else "", ())
        if precision is Precision.INT8:
            return Layout.CHANNELS_LAST, Layout.CHANNELS_LAST
        if not _runs_groupwise(weight, int(node.attributes.get_int("group", 1))):
            return Layout.PLAIN, Layout.PLAIN
        few = weight[1] < FEW_CHANNELS and int(node.attributes.get_int("group", 1)) == 1
        return Layout.PLAIN if few else Layout.BLOCKED, Layout.BLOCKED
    same = Layout.PLAIN
    if precision is Precision.INT8 and Layout.CHANNELS_LAST in layouts:
        if node.op_type in CHANNELS_LAST or _keeps_shape(node, sizes):
            same = Layout.CHANNELS_LAST
    elif precision is not Precision.INT8 and set(layouts) == {Layout.BLOCKED}:
        operands = {sizes.get(value_name(v)) for v in node.inputs if v is not None}
        alone = len(layouts) == 1 or node.op_type in CHANNELS_LAST or len(operands) == 1
        if node.op_type in IN_BLOCKS and alone:
            same = Layout.BLOCKED
    return same, same


def _runs_groupwise(weight: Sizes, group: int) -> bool:
    """Whether a float convolution of images runs on blocks of channels."""
    if len(weight) != IMAGE_RANK:
        return False
    channels, results = weight[1] * group, weight[0]
    return (
        group == 1
        or channels == results == group
        or (weight[1] % BLOCK == 0 and results // group % BLOCK == 0)
    )


def _keeps_shape(node: ir.Node, sizes: Mapping[str, Sizes]) -> bool:
    """Whether the node computes element by element: a result as large as an input, and no axes."""
    result = sizes.get(value_name(node.outputs[0]))
    alike = any(sizes.get(value_name(v)) == result for v in node.inputs if v is not None)
    return alike and not {"perm", "axis", "axes"} & set(node.attributes)


# --- Time of a model in given precisions: its nodes, conversions and changes of layout


Precisions = Mapping[str, Precision | None]
"""Node name -> its precision; FLOAT where not named; None: the node ahead computes it too."""
READS_INTEGERS = frozenset([Precision.INT8, Precision.INT8_FLOAT_OUTPUT])
"""Precisions that read integers."""


@dataclass(frozen=True, slots=True)
class TensorState:
    """Kind of numbers of a tensor, and their layout."""

    has_integers: bool
    layout: Layout


FLOATS = TensorState(has_integers=False, layout=Layout.PLAIN)
"""Inputs and outputs of a model."""


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """Predicted time of a model on one thread.

    Attributes:
        nodes: name of a node -> nanoseconds.
        changes: name of a tensor -> nanoseconds of its conversions and changes of layout.
        run: nanoseconds that a run takes whatever its nodes are.
        unknown: nodes whose time is not known, which are left out.
    """

    nodes: Mapping[str, float]
    changes: Mapping[str, float]
    run: float
    unknown: tuple[str, ...]

    @property
    def ns(self) -> float:
        """Nanoseconds in all."""
        return sum(self.nodes.values()) + sum(self.changes.values()) + self.run


@dataclass(frozen=True, slots=True)
class ChangeTime:
    """Time of a change of a tensor between two nodes: fixed_ns + per_element_ns * elements."""

    fixed_ns: float
    per_element_ns: float

    def ns(self, elements: int) -> float:
        """Nanoseconds for a tensor of so many elements."""
        return self.fixed_ns + self.per_element_ns * elements


class TimeSource(Protocol):
    """Times of nodes and of changes between them: a table's, or those of one model's own nodes."""

    @property
    def target(self) -> str:
        """Machine that they were measured on, in words."""

    @property
    def run_ns(self) -> float:
        """Nanoseconds that a run takes whatever its nodes are."""

    def of_node(
        self,
        node: ir.Node,
        precision: Precision,
        precision_of: PrecisionOf,
        sizes: Mapping[str, Sizes],
    ) -> tuple[Estimate, ...] | None:
        """Times of what a node runs in that precision, conversions around it not counted."""

    def change(self, change: Change, elements: int) -> Estimate | None:
        """Time of changing a tensor of so many elements; None: not measured."""


@dataclass(frozen=True, eq=False)
class Walked:
    """A model whose nodes took precisions, with the states of its tensors.

    Attributes:
        states: value -> the state in which its producer leaves it.
        reads: node -> the state in which it reads its activations.
        own: node -> times of what it runs, conversions around it not counted; None: not known.
    """

    sizes: Mapping[str, Sizes]
    states: dict[ir.Value, TensorState]
    reads: dict[ir.Node, TensorState]
    own: dict[ir.Node, tuple[Estimate, ...] | None]


def walked(
    model: ir.Model,
    precisions: Mapping[str, Precision] | Precisions,
    sizes: Mapping[str, Sizes],
    times: TimeSource,
) -> Walked:
    """The model with these precisions."""
    found = Walked(sizes, dict.fromkeys(model.graph.inputs, FLOATS), {}, {})

    def precision_of(node: ir.Node) -> Precision | None:
        return precisions.get(node_name(node), Precision.FLOAT)

    for node in model.graph:
        step = step_of(node, precision_of(node), precision_of, found.states, sizes, times)
        if step.reads is not None:
            found.reads[node], found.own[node] = step.reads, step.own
        found.states.update(dict.fromkeys(node.outputs, step.writes))
    return found


class Step(NamedTuple):
    """The work of a node in a precision.

    Attributes:
        reads: None where the node ahead computes it too.
    """

    reads: TensorState | None
    writes: TensorState
    own: tuple[Estimate, ...] | None


def step_of(
    node: ir.Node,
    precision: Precision | None,
    precision_of: PrecisionOf,
    states: Mapping[ir.Value, TensorState],
    sizes: Mapping[str, Sizes],
    times: TimeSource,
) -> Step:
    """Step of the node in its precision."""
    ahead = [states.get(value, FLOATS) for value in moving(node)]
    if precision is None:
        return Step(None, next(iter(ahead), FLOATS), None)
    layouts = [state.layout for state in ahead]
    reads, writes = layout_of(node, precision, layouts, sizes)
    return Step(
        TensorState(precision in READS_INTEGERS, reads),
        TensorState(precision is Precision.INT8, writes),
        times.of_node(node, precision, precision_of, sizes),
    )


def predicted(model: ir.Model, found: Walked, times: TimeSource) -> PredictedTime:
    """Predicted time of a model with its precisions."""
    nodes = {node_name(node): own for node, own in found.own.items()}
    changes = {value_name(value): own for value, own in changes_of(model, found, times).items()}
    return PredictedTime(
        {name: total_ns(own) for name, own in nodes.items() if own is not None},
        {name: total_ns(own) for name, own in changes.items() if own},
        times.run_ns,
        tuple(name for name, own in nodes.items() if own is None),
    )


def changes_of(
    model: ir.Model, found: Walked, times: TimeSource
) -> dict[ir.Value, tuple[Estimate, ...]]:
    """Tensor -> times of its conversions and changes of layout, of those that are read."""
    needs: dict[ir.Value, set[TensorState]] = {value: {FLOATS} for value in model.graph.outputs}
    for node, state in found.reads.items():
        for value in moving(node):
            needs.setdefault(value, set()).add(state)
    return {
        value: changing(value, state, needs[value], found.sizes, times)
        for value, state in found.states.items()
        if value in needs
    }


def total_ns(estimates: Iterable[Estimate]) -> float:
    """Nanoseconds of all."""
    return sum(each.ns for each in estimates)


def changing(
    value: ir.Value,
    state: TensorState,
    needs: set[TensorState],
    sizes: Mapping[str, Sizes],
    times: TimeSource,
) -> tuple[Estimate, ...]:
    """Times of the changes of one tensor until all readers have theirs."""
    shape = sizes.get(value.name or "")
    if shape is None or value.dtype not in (None, ir.DataType.FLOAT):
        return ()
    changes = changes_between(state, needs)
    found = (times.change(each, math.prod(shape)) for each in changes)
    return tuple(each for each in found if each is not None)


def changes_between(state: TensorState, needs: set[TensorState]) -> list[Change]:
    """Changes of one tensor until all readers have theirs."""
    wants_integers = {need.layout for need in needs if need.has_integers}
    wants_floats = {need.layout for need in needs if not need.has_integers}
    changes = []
    if state.has_integers:
        if wants_floats:
            changes.append(Change.DEQUANTIZE)
        if Layout.CHANNELS_LAST in wants_integers and state.layout is not Layout.CHANNELS_LAST:
            changes.append(Change.CHANNELS_LAST)
        plain = wants_floats or Layout.PLAIN in wants_integers
        if plain and state.layout is Layout.CHANNELS_LAST:
            changes.append(Change.CHANNELS_FIRST)
        if Layout.BLOCKED in wants_floats:
            changes.append(Change.BLOCKED)
        return changes
    if state.layout is Layout.BLOCKED and (wants_integers or wants_floats - {Layout.BLOCKED}):
        changes.append(Change.UNBLOCKED)
    if state.layout is not Layout.BLOCKED and Layout.BLOCKED in wants_floats:
        changes.append(Change.BLOCKED)
    if wants_integers:
        changes.append(Change.QUANTIZE)
    if Layout.CHANNELS_LAST in wants_integers:
        changes.append(Change.CHANNELS_LAST)
    return changes
