"""Where the quantizers of a PyTorch module sit: where onnxq.prepare puts them in its ONNX form.

There is one set of rules for placement, and it works on ONNX graphs. So the float module is
exported, `onnxq.prepare` decides, and each quantized tensor is led back to the torch.fx node that
makes it. Evidence for a pair is that both have the same values, on the example inputs and on
perturbed ones; where several nodes have them, the exporter's metadata tells the module, and the
order in the graph does the rest. Then every quantized node is gone through: what it reads in the
module must come from the quantizers that it has in the exported graph.

Over 400 lines: one sweep, whose steps share what has been placed so far.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from torch import fx

from onnxq.graph.canonical import canonicalize_module
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers import ChannelHistogramObserver, HistogramObserver
from onnxq.observers.weight_observation import limited_to
from onnxq.operator import Float, Role
from onnxq.ort import facts
from onnxq.ort.types_by_run import types_by_run
from onnxq.ort.version import OLDEST
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.exporting.exporter import export
from onnxq.pytorch.modules.open_attention import why_whole
from onnxq.pytorch.modules.transformers import holds_transformer, without_shortcuts
from onnxq.pytorch.modules.transposed import WEIGHTED, along_channels
from onnxq.pytorch.nn.intrinsic import BATCH_NORMS
from onnxq.pytorch.placing.matching import Matcher, scope_of
from onnxq.pytorch.placing.tracing import (
    is_zero_padding,
    module_of,
    trace,
)
from onnxq.pytorch.train.placements import PlacedGroup, PlacedWeight, Placements, Unplaced, operand
from onnxq.qconfig import (
    Choice,
    FakeQuantSpec,
    QConfig,
    QConfigMapping,
    get_default_qat_qconfig,
)
from onnxq.qdq.sum_scales import ADD
from onnxq.static.placing.decision import Quantize, weight_observer
from onnxq.static.planning.plan_sums import find_sums
from onnxq.static.prepare import backend_of, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from onnxq.observers import ObserverSpec
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Inputs
    from onnxq.qconfig import Part
    from onnxq.qdq.sum_scales import Sum
    from onnxq.static.placing.groups import TensorGroup
    from onnxq.static.prepared import Prepared
    from onnxq.targets import Target

__all__ = ["PlacedGroup", "PlacedWeight", "Placements", "Unplaced", "place", "placements"]


def placements(
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
) -> Placements:
    """Where prepare_qat(model, inputs=inputs, ...) puts fake-quantize modules; print it.

    Args:
        model: float; left as it is.
        inputs: example inputs of forward, real data where that is possible.
        qconfig: names nodes and tensors of the exported model; None: the default for training.
        target: as for onnxq.prepare.

    Raises:
        UnsupportedError: the module cannot be traced or exported.
        QConfigError: as onnxq.prepare.
    """
    copied = copy.deepcopy(model)
    traced = trace(copied, bind(copied, inputs))
    mapping = qconfig or QConfigMapping(get_default_qat_qconfig(backend_of(target)))
    return place(traced, model, inputs, mapping, target)


def place(
    traced: fx.GraphModule,
    model: nn.Module,
    inputs: Inputs,
    qconfig: QConfigMapping,
    target: str | Target | None,
) -> Placements:
    """The placements of a module that `trace` has made of the model.

    Args:
        traced: a graph of the model, or of a copy of it.
        model: float; it is exported.
        inputs: example inputs.
        qconfig: names nodes and tensors of the exported model.
        target: as for onnxq.prepare.

    Raises:
        UnsupportedError: the module cannot be exported.
        QConfigError: as onnxq.prepare.
    """
    if holds_transformer(model):
        model = without_shortcuts(copy.deepcopy(model))
    # in training every node that can is in integers; nothing is chosen
    mapping = qconfig.set_choice(Choice.ALL_INTEGERS)
    canonical = canonicalize_module(export(model, inputs), types_by_run)
    prepared = prepare(canonical, mapping, target)
    return _Placing(traced, bind(model, inputs), prepared).run()


EQUAL_NUMBERS = 1e-6  # a root that was taken in float32, or in float64


@dataclass(slots=True)
class _Group:
    """A PlacedGroup that grows."""

    group: TensorGroup
    nodes: dict[str, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    numbers: list[tuple[str, int, str, float]] = field(default_factory=list)


class _Placing:
    """One run of the search; see the head of this module."""

    def __init__(self, traced: fx.GraphModule, inputs: BoundInputs, prepared: Prepared) -> None:
        self._traced = traced
        self._prepared = prepared
        nodes = [*walk(prepared.model.graph)]
        self._graph = [node for node, _ in nodes]
        self._fusible = {node for node, loop in nodes if loop is None and _may_fuse(node)}
        self._values = {value_name(v): v for v in prepared.model.graph.inputs}
        self._values |= {str(v.name): v for node in self._graph for v in node.outputs}
        self._values |= dict(prepared.model.graph.initializers)
        self._groups = [_Group(group) for group in prepared.groups]
        self._group_of = {t: g for g in self._groups for t in g.group.members}
        self._taken: dict[str, _Group] = {}
        self._weights: list[PlacedWeight] = []
        self._hidden: list[str] = []
        self._copied: dict[str, list[str]] = {}  # hidden tensor -> placed copies of it
        self._unplaced: dict[str, str] = {}
        self._matcher = Matcher(traced, inputs, prepared.model, self._asked())

    def run(self) -> Placements:
        """Placements that were found, and what was not."""
        constants = prepared_constants(self._prepared)
        for tensor in self._values:  # graph order
            if tensor in self._group_of and tensor not in constants:
                self._place_tensor(tensor)
        self._place_hidden()
        for node in self._graph:
            decision = self._prepared.decisions[node_name(node)]
            if isinstance(decision, Quantize) and decision.folded_into is None:
                self._check_node(node, decision)
        for tensor in constants & self._group_of.keys():
            if not any(tensor in _names(g) for g in self._groups) and not self._place_rows(tensor):
                self._unplaced[tensor] = "no node that reads this constant was found"
        return Placements(
            tuple(self._placed(g) for g in self._groups if g.nodes or g.numbers),
            tuple(self._weights),
            tuple(self._kept_float()),
            {n: d.reason for n, d in self._prepared.decisions.items() if isinstance(d, Float)},
            tuple(Unplaced(name, reason) for name, reason in self._unplaced.items()),
            self._prepared.notes,
            tuple(self._sums()),
        )

    def _asked(self) -> list[str]:
        """Quantized tensors, and the results of the nodes that are."""
        initializers = self._prepared.model.graph.initializers
        asked = [t for t in self._group_of if t not in initializers]
        for node in self._graph:
            decision = self._prepared.decisions[node_name(node)]
            if isinstance(decision, Quantize) or node in self._fusible:
                asked += [str(v.name) for v in node.outputs if v.name]
        return asked

    def _place_tensor(self, tensor: str) -> None:
        group = self._group_of[tensor]
        nodes = self._matcher.nodes(self._values[tensor])
        free = [node for node in nodes if node.name not in self._taken]
        if free:
            self._put(free[0], tensor)
        elif not nodes:
            self._hidden.append(tensor)
        elif not any(self._taken[node.name] is group for node in nodes):
            self._unplaced[tensor] = (
                f"'{nodes[0].name}' has its values, and is another quantized tensor already"
            )

    def _place_hidden(self) -> None:
        """Tensors that the module does not have, such as an LSTM's result before its transposition.

        Rounding the copies that it has is the same, where only copies are read.
        """
        for tensor in reversed(self._hidden):  # copies first
            group = self._group_of[tensor]
            copies = [str(v.name) for node in self._copiers(tensor) for v in node.outputs]
            known = {*group.nodes.values(), *self._copied}
            if copies and known.issuperset(copies):
                self._copied[tensor] = [
                    name for copy in copies for name in self._copied.get(copy, [copy])
                ]
                continue
            self._unplaced[tensor] = (
                f"no part of the module's forward computes this tensor: {self._where(tensor)}"
            )
        for tensor, copies in self._copied.items():
            group = self._group_of[tensor]
            if tensor in group.group.sources:
                names = [node for node, name in group.nodes.items() if name in copies]
                group.sources += [name for name in names if name not in group.sources]

    def _place_rows(self, tensor: str) -> bool:
        """A table, of which the module has what is looked up: rounding that rounds the table."""
        group = self._group_of[tensor]
        results = set[str]()
        for node, slot in self._values[tensor].uses():
            decision = self._prepared.decisions[node_name(node)]
            if isinstance(decision, Quantize) and slot in decision.rule.activations:
                if decision.rule.role is not Role.MOVEMENT:
                    return False
                results |= {str(v.name) for v in node.outputs}
        rows = [node for node, name in group.nodes.items() if name in results]
        if not results <= {group.nodes[node] for node in rows}:
            return False
        group.sources += [row for row in rows if row not in group.sources]
        return bool(rows)

    def _where(self, tensor: str) -> str:
        """In what a tensor lies that the module does not have."""
        path = scope_of(self._values[tensor])
        for node in self._traced.graph.nodes:
            reason = why_whole(module_of(self._traced, node))
            if reason and node.target == path:
                return f"it lies inside '{path}' (MultiheadAttention): {reason}"
        return "it lies inside a function or module that the exporter takes apart"

    def _copiers(self, tensor: str) -> list[ir.Node]:
        """The nodes that read a tensor's values, if each of them only copies them; else none."""
        value = self._values[tensor]
        readers = [node for node in value.consumers() if facts.of(node).on_data]
        for node in readers:
            decision = self._prepared.decisions[node_name(node)]
            if not isinstance(decision, Quantize) or decision.rule.role is not Role.MOVEMENT:
                return []
        return [] if value.is_graph_output() else readers

    def _put(self, node: fx.Node, tensor: str) -> None:
        group = self._group_of[tensor]
        group.nodes[node.name] = tensor
        self._taken[node.name] = group
        if tensor in group.group.sources or tensor in group.group.constants:
            group.sources.append(node.name)

    # --- what quantized nodes read

    def _check_node(self, node: ir.Node, decision: Quantize) -> None:
        if decision.rule.role in (Role.MOVEMENT, Role.CLAMP):
            return  # their inputs and results share one grid, which _place_tensor saw to
        core = self._core(node)
        if core is None:
            self._unplaced[node_name(node)] = (
                f"no part of the module's forward computes what this {node.op_type} does"
            )
            return
        if decision.rule.weight is not None:
            called = self._place_weight(node, decision, core)
            if called is None:
                return
            core = called
        wanted = [v for slot in decision.rule.activations if (v := node.inputs[slot]) is not None]
        for argument in core.all_input_nodes:
            if self._matcher.is_tensor(argument):
                self._check_argument(node, argument, wanted)
        for value in wanted:
            if value.is_initializer() and not _has(self._group_of[value_name(value)], value):
                self._place_number(core, value)

    def _core(self, node: ir.Node) -> fx.Node | None:
        """The node that computes the first of these: the ONNX node's result, then with its bias."""
        results = [v for v in node.outputs if v.name]
        for folded in self._graph:
            decision = self._prepared.decisions[node_name(folded)]
            if isinstance(decision, Quantize) and decision.folded_into == node_name(node):
                results += [v for v in folded.outputs if decision.rule.clamp is None]
        found = (n for v in results for n in self._matcher.nodes(v))
        weighted = self._prepared.decisions[node_name(node)]
        assert isinstance(weighted, Quantize)
        if weighted.rule.weight is None:
            return next(found, None)
        nodes = list(found)
        called = {weight.node for weight in self._weights}
        modules = [
            n for n in nodes if isinstance(module_of(self._traced, n), (*WEIGHTED, *BATCH_NORMS))
        ]
        unused = [n for n in modules if n.name not in called]
        return next(iter([*unused, *nodes]), None)

    def _place_weight(self, node: ir.Node, decision: Quantize, core: fx.Node) -> fx.Node | None:
        """The node that calls the module with the weight; None where there is none."""
        norm = None
        called = core
        if isinstance(module_of(self._traced, core), BATCH_NORMS):
            norm, called = core.name, core.all_input_nodes[0]
        if not isinstance(module_of(self._traced, called), WEIGHTED):
            self._unplaced[node_name(node)] = (
                f"its weight is used by '{called.name}' ({called.op} {called.target}), which is no "
                "call of a module with that weight. Write it as nn.Conv or nn.Linear, or leave "
                f"node '{node_name(node)}' float in the qconfig"
            )
            return None
        part = self._weight_part(node, decision, called)
        self._weights.append(
            PlacedWeight(called.name, str(called.target), norm, node_name(node), part)
        )
        return called

    def _weight_part(self, node: ir.Node, decision: Quantize, called: fx.Node) -> Part:
        """The weight's part of the qconfig, as the plan would use it, for torch's layout."""
        qconfig, target = self._prepared.qconfig, self._prepared.target
        saturating = decision.rule.saturating_pairs
        limit = target.weight_qmax_saturating if saturating else target.weight_qmax
        entry = qconfig.for_node(node_name(node), node.op_type)
        assert entry is not None, "a node without an entry is float"
        module = module_of(self._traced, called)
        assert module is not None, "the caller looked"
        spec = limited_to(weight_observer(node, decision.rule, qconfig), limit, ch_axis=0)
        return along_channels(with_observer(entry.weight, spec), module)

    def _check_argument(self, node: ir.Node, argument: fx.Node, wanted: list[ir.Value]) -> None:
        """Sees to it that an argument of a quantized node comes from one of the right groups."""
        groups = [self._group_of[value_name(v)] for v in wanted]
        source = self._source(argument)
        if any(self._taken.get(source.name) is group for group in groups):
            return
        for value in wanted:  # computed twice in the module, once in the exported graph; a constant
            if argument in self._matcher.nodes(value) and argument.name not in self._taken:
                self._put(argument, value_name(value))
                return
        self._unplaced[value_name(wanted[0])] = (
            f"'{argument.name}', which the module's {node.op_type} '{node_name(node)}' reads, is "
            "not this tensor"
        )

    def _source(self, node: fx.Node) -> fx.Node:
        """The placed node that this one is a copy of, or the first of the copies.

        A Conv that pads by itself reads what the module pads ahead of it.
        """
        while node.name not in self._taken and (
            self._matcher.is_copy(node) or is_zero_padding(self._traced, node)
        ):
            node = node.all_input_nodes[0]
        return node

    def _place_number(self, core: fx.Node, value: ir.Value) -> None:
        """A constant that is a number among the node's arguments."""
        array = self._matcher.constant(value)
        for position, argument in enumerate(core.args):
            number: object = argument
            if isinstance(argument, fx.Node):
                number = self._matcher.recorded[0][argument]
            if isinstance(number, int | float) and np.allclose(
                array, number, rtol=EQUAL_NUMBERS, atol=0
            ):
                group = self._group_of[value_name(value)]
                group.numbers.append((core.name, position, value_name(value), float(number)))
                return
        self._unplaced[value_name(value)] = f"'{core.name}' has no argument with these values"

    def _kept_float(self) -> Iterator[str]:
        """Float nodes that need a guard, as in the rewrite (onnxq.static.rewrite.guards)."""
        for node in self._graph:
            if isinstance(self._prepared.decisions[node_name(node)], Quantize):
                continue
            if node not in self._fusible:
                continue
            results = [v for v in node.outputs if v.name]
            cores = [n for v in results for n in self._matcher.nodes(v)]
            read = (
                [n for n in cores[0].all_input_nodes if self._matcher.is_tensor(n)] if cores else []
            )
            rounded = [self._source(n).name in self._taken for n in read]
            quantized = any(v.name in self._group_of for v in results)
            if read and all(rounded) and (quantized or len(read) > 1):
                yield cores[0].name

    def _sums(self) -> Iterator[Sum]:
        """Sums that ONNX Runtime runs as QLinearAdd, where the target wants sums to agree."""
        if not self._prepared.target.agreeing_sums:
            return
        for one in find_sums(self._prepared, self._prepared.decisions):
            sides = [[self._first(t) for t in tensors] for tensors in (one.inputs, one.outputs)]
            # others are written by the rewrite alone, and computed in float in an exported module
            if one.op_type == ADD and all(name for side in sides for name in side):
                yield replace(one, inputs=tuple(sides[0]), outputs=tuple(sides[1]))

    def _first(self, tensor: str | None) -> str | None:
        """The first node of the tensor's group."""
        group = self._group_of.get(str(tensor))
        if group is None:
            return None
        numbers = [operand(node, position) for node, position, _, _ in group.numbers]
        return next(iter([*group.nodes, *numbers]), None)

    def _placed(self, group: _Group) -> PlacedGroup:
        clamps = [
            self._prepared.clamps[t] for t in group.group.members if t in self._prepared.clamps
        ]
        return PlacedGroup(
            dict(group.nodes),
            tuple(group.sources),
            tuple(group.numbers),
            self._part(_plain(group.group.observer)),
            group.group.range,
            clamps[0] if clamps else None,
        )

    def _part(self, observer: ObserverSpec) -> Part:
        """The part of the qconfig that holds the observer, which may train its scale."""
        qconfig = self._prepared.qconfig
        entries = (qconfig.global_qconfig, *qconfig.op_types.values(), *qconfig.nodes.values())
        static = [entry for entry in entries if isinstance(entry, QConfig)]
        for entry in static:
            if entry.activation_observer == observer:
                return entry.activation
        return with_observer(static[0].activation, observer)


# --- small things


def _may_fuse(node: ir.Node) -> bool:
    """Whether ONNX Runtime may run the node in integers where Q and DQ stand around it."""
    floats = any(v.type == ir.TensorType(ir.DataType.FLOAT) for v in node.outputs)
    return floats and not facts.of(node, OLDEST).stays_float


def with_observer(part: Part, observer: ObserverSpec) -> Part:
    """The part with another observer: still rounding where it rounds."""
    return replace(part, observer=observer) if isinstance(part, FakeQuantSpec) else observer


def prepared_constants(prepared: Prepared) -> set[str]:
    """Initializers that are quantized as activations."""
    return {tensor for group in prepared.groups for tensor in group.constants}


def _names(group: _Group) -> set[str]:
    return {*group.nodes.values(), *(name for _, _, name, _ in group.numbers)}


def _has(group: _Group, value: ir.Value) -> bool:
    return value.name in group.nodes.values()


def _plain(observer: ObserverSpec) -> ObserverSpec:
    """The observer without gains per channel, which are made of float weights alone."""
    if observer.name != ChannelHistogramObserver.__name__:
        return observer
    args = {k: v for k, v in dict(observer.args).items() if k != "ch_axis"}
    return HistogramObserver.with_args(**args)
