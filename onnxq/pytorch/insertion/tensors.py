"""Quantized tensors of an ONNX form, and the nodes of a training graph that make them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import onnx_ir as ir
from torch import fx

from onnxq.graph.walk import value_name
from onnxq.observers import ChannelHistogramObserver, HistogramObserver, ObserverSpec
from onnxq.operator import OpCategory
from onnxq.ort import facts
from onnxq.pytorch.insertion.view import View
from onnxq.pytorch.train.annotations import AnnotatedGroup, Unannotated, operand
from onnxq.qconfig import FakeQuantSpec, Part, QConfig
from onnxq.static.insertion.groups import TensorGroup

_OPERATOR = "pkg.torch.onnx.class_hierarchy"  # of a node's metadata: modules, then its operator

OWN_BACKWARD = "a torch.autograd.Function, which trains with a backward of its own"
"""End of the reason why an operator of such a function stays float."""


@dataclass(slots=True)
class Group:
    """A AnnotatedGroup that grows."""

    group: TensorGroup
    nodes: dict[str, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    numbers: list[tuple[str, int, str, float]] = field(default_factory=list)

    @property
    def tensors(self) -> set[str]:
        """Tensors that have been annotated."""
        return {*self.nodes.values(), *(name for _, _, name, _ in self.numbers)}


class Tensors:
    """The quantized tensors, as far as they have been annotated."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.groups = [Group(group) for group in view.prepared.groups]
        self.of = {tensor: g for g in self.groups for tensor in g.group.members}
        self._taken: dict[str, Group] = {}
        self._hidden: list[str] = []
        self._copied: dict[str, list[str]] = {}  # hidden tensor -> annotated copies of it

    def annotate(self) -> Iterator[Unannotated]:
        """Places what nodes compute; gives what they do not."""
        for tensor in self._view.values:  # graph order
            if tensor in self.of and tensor not in self._view.constants:
                yield from self._annotate(tensor)
        yield from self._annotate_hidden()

    def annotate_rows(self) -> Iterator[Unannotated]:
        """Sees to the constants that no node was found to read; gives those that it cannot."""
        constants = [tensor for tensor in self.of if tensor in self._view.constants]
        for tensor in constants:
            if tensor not in self.of[tensor].tensors and not self._annotate_rows(tensor):
                reason = "no node that reads this constant was found"
                yield Unannotated(tensor, reason, self._view.around(tensor))

    def put(self, node: fx.Node, tensor: str) -> None:
        """Notes that a node makes the tensor."""
        group = self.of[tensor]
        group.nodes[node.name] = tensor
        self._taken[node.name] = group
        if tensor in group.group.sources or tensor in group.group.constants:
            group.sources.append(node.name)

    def put_apart(self, node: fx.Node, tensor: str) -> None:
        """Notes that a node makes a constant that equals this one now, and trains by itself."""
        group = Group(self.of[tensor].group, {node.name: tensor}, [node.name])
        self.groups.append(group)
        self._taken[node.name] = group

    def group_of(self, node: fx.Node) -> Group | None:
        """The group of the tensor that a node makes; None: it is not rounded."""
        return self._taken.get(node.name)

    def source(self, node: fx.Node) -> fx.Node:
        """The annotated node that this one is a copy of, or the first of the copies.

        A Conv that pads by itself reads what the module pads ahead of it.
        """
        names = self._view.names
        while node.name not in self._taken and (names.is_copy(node) or names.is_zero_padding(node)):
            node = node.all_input_nodes[0]
        return node

    def first(self, tensor: str | None) -> str | None:
        """The first node of the tensor's group."""
        group = self.of.get(str(tensor))
        if group is None:
            return None
        numbers = [operand(node, position) for node, position, _, _ in group.numbers]
        return next(iter([*group.nodes, *numbers]), None)

    def annotated_groups(self) -> tuple[AnnotatedGroup, ...]:
        """The groups of which something was annotated."""
        return tuple(self._annotated(g) for g in self.groups if g.nodes or g.numbers)

    # --- one tensor

    def _annotate(self, tensor: str) -> Iterator[Unannotated]:
        group = self.of[tensor]
        nodes = self._view.names.nodes(self._view.values[tensor])
        free = [node for node in nodes if node.name not in self._taken]
        if free:
            self.put(free[0], tensor)
        elif not nodes:
            self._hidden.append(tensor)
        elif not any(self._taken[node.name] is group for node in nodes):
            reason = f"'{nodes[0].name}' is its result, and is another quantized tensor already"
            yield Unannotated(tensor, reason, self._view.around(tensor))

    def _annotate_hidden(self) -> Iterator[Unannotated]:
        """Tensors that the module lacks, such as an LSTM's result before its transposition."""
        for tensor in reversed(self._hidden):  # copies first
            group = self.of[tensor]
            copies = [str(v.name) for node in self._copiers(tensor) for v in node.outputs]
            known = {*group.nodes.values(), *self._copied}
            if copies and known.issuperset(copies):
                self._copied[tensor] = [
                    name for copy in copies for name in self._copied.get(copy, [copy])
                ]
                continue
            yield Unannotated(tensor, self.where(tensor), self._view.around(tensor))
        for tensor, copies in self._copied.items():
            group = self.of[tensor]
            if tensor in group.group.sources:
                names = [node for node, name in group.nodes.items() if name in copies]
                group.sources += [name for name in names if name not in group.sources]

    def _copiers(self, tensor: str) -> list[ir.Node]:
        """The nodes that read a tensor's values, if each of them only copies them; else none."""
        value = self._view.values[tensor]
        readers = [node for node in value.consumers() if facts.of(node).on_data]
        for node in readers:
            decision = self._view.quantized(node)
            if decision is None or decision.rule.category is not OpCategory.MOVEMENT:
                return []
        return [] if value.is_graph_output() else readers

    def _annotate_rows(self, tensor: str) -> bool:
        """A table, of which the module has what is looked up: rounding that rounds the table."""
        group = self.of[tensor]
        results = set[str]()
        for node, slot in self._view.values[tensor].uses():
            decision = self._view.quantized(node)
            if decision is not None and slot in decision.rule.activations:
                if decision.rule.category is not OpCategory.MOVEMENT:
                    return False
                results |= {value_name(v) for v in node.outputs}
        rows = [node for node, name in group.nodes.items() if name in results]
        if not results <= {group.nodes[node] for node in rows}:
            return False
        group.sources += [row for row in rows if row not in group.sources]
        return bool(rows)

    def where(self, tensor: str) -> str:
        """Words for what a tensor lies in that the module does not have."""
        function = self._view.names.function_around(self._view.values[tensor])
        if function:
            return f"it lies inside {function}, {OWN_BACKWARD}"
        producer = self._view.values[tensor].producer()
        said = "" if producer is None else producer.metadata_props.get(_OPERATOR, "")
        operators = [part.strip(" []'\"") for part in said.split(",") if part]
        inside = f"'{operators[-1]}'" if operators else "a function"
        return f"it lies inside {inside}, which is one step of forward and several nodes in ONNX"

    # --- what becomes of a group

    def _annotated(self, group: Group) -> AnnotatedGroup:
        clamps = self._view.prepared.clamps
        found = [clamps[t] for t in group.group.members if t in clamps]
        return AnnotatedGroup(
            dict(group.nodes),
            tuple(group.sources),
            tuple(group.numbers),
            self._part(_plain(group.group.observer)),
            group.group.range,
            found[0] if found else None,
        )

    def _part(self, observer: ObserverSpec) -> Part:
        """The part of the qconfig that holds the observer, which may train its scale."""
        qconfig = self._view.prepared.qconfig
        entries = (qconfig.global_qconfig, *qconfig.op_types.values(), *qconfig.nodes.values())
        static = [entry for entry in entries if isinstance(entry, QConfig)]
        for entry in static:
            if entry.activation_observer == observer:
                return entry.activation
        return with_observer(static[0].activation, observer)


def with_observer(part: Part, observer: ObserverSpec) -> Part:
    """The part with another observer: still rounding where it rounds."""
    return replace(part, observer=observer) if isinstance(part, FakeQuantSpec) else observer


def _plain(observer: ObserverSpec) -> ObserverSpec:
    """The observer without gains per channel, which are made of float weights alone."""
    if observer.name != ChannelHistogramObserver.__name__:
        return observer
    args = {k: v for k, v in dict(observer.args).items() if k != "ch_axis"}
    return HistogramObserver.with_args(**args)
