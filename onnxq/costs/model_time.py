"""Time of a whole model whose nodes take given forms: nodes, conversions, changes of layout."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from onnxq.costs.node_layouts import Layout, layout_of
from onnxq.costs.table import Change
from onnxq.costs.work import FUSED, RUN, Work, moving, work_of
from onnxq.graph.sizes import sizes_of
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Precision
from onnxq.operator.nodes import is_constant
from onnxq.ort import facts
from onnxq.ort.layouts import ADDED_BY_CONV, CONVOLUTION, FUSED_BEHIND_CONV, GATE
from onnxq.targets.gains import PRODUCT_OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onnxq.costs.table import Costs, Estimate
    from onnxq.graph.sizes import Sizes

READS_CODES = frozenset([Precision.INT8, Precision.INT8_FLOAT_OUTPUT])
"""Forms that read codes."""


@dataclass(frozen=True, slots=True)
class TensorState:
    """Kind of numbers of a tensor, and their layout.

    Attributes:
        has_codes: whether it is of codes, else of floats.
        layout: of them.
    """

    has_codes: bool
    layout: Layout


FLOATS = TensorState(has_codes=False, layout=Layout.PLAIN)
"""Inputs and outputs of a model."""


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """Predicted time of a model on one thread.

    Attributes:
        nodes: name of a node -> nanoseconds.
        changes: name of a tensor -> nanoseconds of its conversions and changes of layout.
        run: nanoseconds that a run takes whatever its nodes are.
        error_ns: root of the sum of the squared errors of all of them.
        unknown: nodes whose time is not known, which are left out.
    """

    nodes: Mapping[str, float]
    changes: Mapping[str, float]
    run: float
    error_ns: float
    unknown: tuple[str, ...]

    @property
    def ns(self) -> float:
        """Nanoseconds in all."""
        return sum(self.nodes.values()) + sum(self.changes.values()) + self.run


def predict_time(
    model: ir.Model,
    forms: Mapping[str, Precision],
    inputs: Mapping[str, Sizes],
    costs: Costs,
) -> PredictedTime:
    """Predicted time of a canonical float model after its nodes take these forms.

    Args:
        model: float, canonical; nodes in bodies count for nothing.
        forms: name of a node -> its form; FLOAT where it is not named.
        inputs: input name -> shape.
        costs: table of the machine.

    Raises:
        ShapeError: an input has another rank.
    """
    return predicted(model, walked(model, forms, sizes_of(model, inputs), costs), costs)


@dataclass(frozen=True, eq=False)
class Walked:
    """A model whose nodes took forms, with the states of its tensors.

    Attributes:
        sizes: of the values, by name.
        states: value -> the state in which its producer leaves it.
        reads: node -> the state in which it reads its activations.
        own: node -> times of what it runs, conversions around it not counted; None: not known.
    """

    sizes: Mapping[str, Sizes]
    states: dict[ir.Value, TensorState]
    reads: dict[ir.Node, TensorState]
    own: dict[ir.Node, tuple[Estimate, ...] | None]


def walked(
    model: ir.Model, forms: Mapping[str, Precision], sizes: Mapping[str, Sizes], costs: Costs
) -> Walked:
    """The model with these forms.

    Args:
        model: as of `predict_time`.
        forms: as of `predict_time`.
        sizes: of the values, by name.
        costs: table of the machine.
    """
    found = Walked(sizes, dict.fromkeys(model.graph.inputs, FLOATS), {}, {})

    def form_of(node: ir.Node) -> Precision:
        return forms.get(node_name(node), Precision.FLOAT)

    for node in model.graph:
        step = step_of(node, form_of, found.states, sizes, costs)
        found.reads[node], found.own[node] = step.reads, step.own
        found.states.update(dict.fromkeys(node.outputs, step.writes))
    return found


class Step(NamedTuple):
    """The work of a node in a form.

    Attributes:
        reads: state in which it reads its activations.
        writes: state of its results.
        own: times of what it runs; None: not known.
    """

    reads: TensorState
    writes: TensorState
    own: tuple[Estimate, ...] | None


def step_of(
    node: ir.Node,
    form_of: Callable[[ir.Node], Precision],
    states: Mapping[ir.Value, TensorState],
    sizes: Mapping[str, Sizes],
    costs: Costs,
) -> Step:
    """Step of the node in its form.

    Args:
        node: of the main graph.
        form_of: forms of it and of its sources.
        states: of what it reads.
        sizes: of the values, by name.
        costs: table of the machine.
    """
    form = form_of(node)
    layouts = [states.get(value, FLOATS).layout for value in moving(node)]
    reads, writes = layout_of(node, form, layouts, sizes)
    absorbed = is_absorbed(node, form, form_of)
    return Step(
        TensorState(form in READS_CODES, reads),
        TensorState(form is Precision.INT8, writes),
        (_inside if absorbed else _alone)(node, form, sizes, costs),
    )


def _inside(
    node: ir.Node, form: Precision, sizes: Mapping[str, Sizes], costs: Costs
) -> tuple[Estimate, ...]:
    """Time that a node adds to the one that computes it."""
    work = work_of(node, sizes)
    found = None if work is None else costs.node(replace(work, kind=FUSED), form)
    return () if found is None else (found,)


def _alone(
    node: ir.Node, form: Precision, sizes: Mapping[str, Sizes], costs: Costs
) -> tuple[Estimate, ...] | None:
    """Time of a node; between codes, an operator without integer kernel converts on both sides."""
    work = work_of(node, sizes)
    if work is None:
        return None
    found = costs.node(work, form)
    if found is not None:
        return (found,)
    floats = costs.node(work, Precision.FLOAT)
    if form is not Precision.INT8 or floats is None or not facts.of(node).stays_float:
        return None
    ends = (
        costs.change(Change.DEQUANTIZE, work.read),
        costs.change(Change.QUANTIZE, work.written),
    )
    return (floats, *(end for end in ends if end is not None))


def predicted(model: ir.Model, found: Walked, costs: Costs) -> PredictedTime:
    """Predicted time of a model with its forms.

    Args:
        model: as of `predict_time`.
        found: the model with these forms.
        costs: table of the machine.
    """
    needs: dict[ir.Value, set[TensorState]] = {value: {FLOATS} for value in model.graph.outputs}
    for node, state in found.reads.items():
        for value in moving(node):
            needs.setdefault(value, set()).add(state)
    nodes = {node_name(node): own for node, own in found.own.items()}
    changes = {
        value_name(value): changing(value, state, needs[value], found.sizes, costs)
        for value, state in found.states.items()
        if value in needs
    }
    run = costs.node(Work(RUN), Precision.FLOAT)
    every = [e for own in (*nodes.values(), *changes.values()) if own for e in own]
    return PredictedTime(
        {name: total_ns(own) for name, own in nodes.items() if own is not None},
        {name: total_ns(own) for name, own in changes.items() if own},
        0.0 if run is None else run.ns,
        math.hypot(*(each.error_ns for each in every)),
        tuple(name for name, own in nodes.items() if own is None),
    )


def total_ns(estimates: Iterable[Estimate]) -> float:
    """Nanoseconds of all."""
    return sum(each.ns for each in estimates)


def changing(
    value: ir.Value,
    state: TensorState,
    needs: set[TensorState],
    sizes: Mapping[str, Sizes],
    costs: Costs,
) -> tuple[Estimate, ...]:
    """Times of the changes of one tensor until all readers have theirs.

    Args:
        value: the tensor.
        state: in which its producer leaves it.
        needs: those in which it is read.
        sizes: of the values, by name.
        costs: table of the machine.
    """
    shape = sizes.get(value.name or "")
    if shape is None or not _has_numbers(value):
        return ()
    changes = changes_between(state, needs)
    found = (costs.change(each, math.prod(shape)) for each in changes)
    return tuple(each for each in found if each is not None)


def changes_between(state: TensorState, needs: set[TensorState]) -> list[Change]:
    """Changes of one tensor until all readers have theirs; each happens once, layouts on codes."""
    wants_codes = {need.layout for need in needs if need.has_codes}
    wants_floats = {need.layout for need in needs if not need.has_codes}
    changes = []
    if state.has_codes:
        if wants_floats:
            changes.append(Change.DEQUANTIZE)
        if Layout.CHANNELS_LAST in wants_codes and state.layout is not Layout.CHANNELS_LAST:
            changes.append(Change.CHANNELS_LAST)
        plain = wants_floats or Layout.PLAIN in wants_codes
        if plain and state.layout is Layout.CHANNELS_LAST:
            changes.append(Change.CHANNELS_FIRST)
        if Layout.BLOCKED in wants_floats:
            changes.append(Change.BLOCKED)
        return changes
    if state.layout is Layout.BLOCKED and (wants_codes or wants_floats - {Layout.BLOCKED}):
        changes.append(Change.UNBLOCKED)
    if state.layout is not Layout.BLOCKED and Layout.BLOCKED in wants_floats:
        changes.append(Change.BLOCKED)
    if wants_codes:
        changes.append(Change.QUANTIZE)
    if Layout.CHANNELS_LAST in wants_codes:
        changes.append(Change.CHANNELS_LAST)
    return changes


def is_absorbed(node: ir.Node, form: Precision, form_of: Callable[[ir.Node], Precision]) -> bool:
    """Whether ONNX Runtime computes the node inside of the one ahead of it."""
    sources = [v.producer() for v in node.inputs if v is not None]
    ahead = [
        source
        for source in sources
        if source is not None
        and _gives(form_of(source)) is form
        and len(source.outputs[0].uses()) == 1
        and not source.outputs[0].is_graph_output()
    ]
    if not ahead:
        return False
    if form is Precision.FLOAT and is_gate_of_itself(node):
        return True
    if form is Precision.INT8 and facts.of(node).swallowed:
        return True
    if form is Precision.FLOAT and any(source.op_type == CONVOLUTION for source in ahead):
        return node.op_type in FUSED_BEHIND_CONV or (
            node.op_type in ADDED_BY_CONV and len(sources) == 2 and None not in sources
        )
    return (
        node.op_type in ADDED_BY_CONV
        and ahead[0].op_type in PRODUCT_OPS
        and any(is_constant(node, slot) for slot in range(len(node.inputs)))
    )


def _gives(form: Precision) -> Precision:
    """Form of a node that goes on with the numbers which this one leaves: codes, or floats."""
    return Precision.FLOAT if form is Precision.INT8_FLOAT_OUTPUT else form


def is_gate_of_itself(node: ir.Node) -> bool:
    """Whether it is x * Sigmoid(x), which ONNX Runtime computes as one node."""
    if node.op_type != GATE[0]:
        return False
    first, second = node.inputs
    for x, gate in ((first, second), (second, first)):
        source = None if gate is None else gate.producer()
        if source is not None and source.op_type == GATE[1] and source.inputs[0] is x:
            return True
    return False


def _has_numbers(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype == ir.DataType.FLOAT
