"""Time of a whole model whose nodes take given forms: nodes, conversions, changes of layout."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.costs.layouts import Layout, layout_of
from onnxq.costs.table import Change
from onnxq.costs.work import FUSED, RUN, Work, work_of
from onnxq.graph.sizes import sizes_of
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import NodeForm
from onnxq.operator.nodes import is_constant
from onnxq.ort import facts
from onnxq.ort.layouts import ADDED_BY_CONV, CONVOLUTION, FUSED_BEHIND_CONV, GATE
from onnxq.targets.gains import PRODUCT_OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxq.costs.table import Costs, Estimate
    from onnxq.graph.sizes import Sizes

READS_CODES = frozenset([NodeForm.INTEGER, NodeForm.FLOAT_RESULT])
"""Forms that read codes."""


@dataclass(frozen=True, slots=True)
class State:
    """Kind of numbers of a tensor, and their layout.

    Attributes:
        has_codes: whether it is of codes, else of floats.
        layout: of them.
    """

    has_codes: bool
    layout: Layout


FLOATS = State(has_codes=False, layout=Layout.PLAIN)
"""Inputs and outputs of a model."""


@dataclass(frozen=True, slots=True)
class Prediction:
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
    forms: Mapping[str, NodeForm],
    inputs: Mapping[str, Sizes],
    costs: Costs,
) -> Prediction:
    """Predicted time of a canonical float model after its nodes take these forms.

    Args:
        model: float, canonical; nodes in bodies count for nothing.
        forms: name of a node -> its form; FLOAT where it is not named.
        inputs: input name -> shape.
        costs: table of the machine.

    Raises:
        ShapeError: an input has another rank.
    """
    return _Walk(model, forms, sizes_of(model, inputs), costs).prediction()


class _Walk:
    """A walk over the nodes, which knows the state of every tensor so far."""

    def __init__(
        self,
        model: ir.Model,
        forms: Mapping[str, NodeForm],
        sizes: Mapping[str, Sizes],
        costs: Costs,
    ) -> None:
        self._model, self._forms, self._sizes, self._costs = model, forms, sizes, costs
        self._states = dict.fromkeys(model.graph.inputs, FLOATS)
        self._needs: dict[ir.Value, set[State]] = {v: {FLOATS} for v in model.graph.outputs}
        self._errors: list[float] = []
        self._unknown: list[str] = []

    def prediction(self) -> Prediction:
        nodes = {node_name(node): self._node(node) for node in self._model.graph}
        changes = {
            value_name(value): self._changes(value, state) for value, state in self._states.items()
        }
        return Prediction(
            nodes,
            {name: ns for name, ns in changes.items() if ns},
            self._between(self._costs.node(Work(RUN), NodeForm.FLOAT)),
            math.hypot(*self._errors),
            tuple(self._unknown),
        )

    def form(self, node: ir.Node) -> NodeForm:
        return self._forms.get(node_name(node), NodeForm.FLOAT)

    def _node(self, node: ir.Node) -> float:
        form = self.form(node)
        moving = [v for slot, v in enumerate(node.inputs) if v and not is_constant(node, slot)]
        layouts = [self._states.get(value, FLOATS).layout for value in moving]
        reads, writes = layout_of(node, form, layouts, self._sizes)
        needed = State(form in READS_CODES, reads)
        for value in moving:
            if _has_numbers(value):
                self._needs.setdefault(value, set()).add(needed)
        result = State(form is NodeForm.INTEGER, writes)
        self._states.update(dict.fromkeys(node.outputs, result))
        if is_absorbed(node, form, self.form):
            work = work_of(node, self._sizes)
            fused = None if work is None else self._costs.node(replace(work, kind=FUSED), form)
            return self._between(fused)
        return self._own(node, form)

    def _own(self, node: ir.Node, form: NodeForm) -> float:
        """Time of the node itself."""
        work = work_of(node, self._sizes)
        found = None if work is None else self._costs.node(work, form)
        if work is not None and found is None and form is NodeForm.INTEGER:
            found = self._costs.node(work, NodeForm.FLOAT) if facts.of(node).stays_float else None
            if found is not None:
                return self._between(
                    found,
                    self._costs.change(Change.DEQUANTIZE, work.read),
                    self._costs.change(Change.QUANTIZE, work.written),
                )
        if found is None:
            self._unknown.append(node_name(node))
            return 0.0
        return self._between(found)

    def _between(self, *estimates: Estimate | None) -> float:
        known = [each for each in estimates if each is not None]
        self._errors += [each.error_ns for each in known]
        return sum(each.ns for each in known)

    def _changes(self, value: ir.Value, state: State) -> float:
        sizes = self._sizes.get(value.name or "")
        if sizes is None or value not in self._needs or not _has_numbers(value):
            return 0.0
        changes = changes_between(state, self._needs[value])
        return self._between(*(self._costs.change(each, math.prod(sizes)) for each in changes))


def changes_between(state: State, needs: set[State]) -> list[Change]:
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


def is_absorbed(node: ir.Node, form: NodeForm, form_of: Callable[[ir.Node], NodeForm]) -> bool:
    """Whether ONNX Runtime computes the node inside of the one ahead of it."""
    sources = [v.producer() for v in node.inputs if v is not None]
    ahead = [
        source
        for source in sources
        if source is not None
        and form_of(source) is form
        and len(source.outputs[0].uses()) == 1
        and not source.outputs[0].is_graph_output()
    ]
    if not ahead:
        return False
    if form is NodeForm.FLOAT and is_gate_of_itself(node):
        return True
    if form is NodeForm.INTEGER and facts.of(node).swallowed:
        return True
    if form is NodeForm.FLOAT and any(source.op_type == CONVOLUTION for source in ahead):
        return node.op_type in FUSED_BEHIND_CONV or (
            node.op_type in ADDED_BY_CONV and len(sources) == 2 and None not in sources
        )
    return (
        node.op_type in ADDED_BY_CONV
        and ahead[0].op_type in PRODUCT_OPS
        and any(is_constant(node, slot) for slot in range(len(node.inputs)))
    )


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
