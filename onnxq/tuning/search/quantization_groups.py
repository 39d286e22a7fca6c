"""Quantization groups of a model: nodes that take a precision together, and their precisions.

A group is a node that computes (Conv, MatMul, LSTM), what its integer kernel carries out besides (a
bias, a Relu), and the cheap nodes behind it that only pay on integers beside it (sums, shapes,
squares): apart, their conversions would cost what they save. Where a search begins with one of
these in another precision than its group would give it (squares in float behind a Conv in integers,
a Transpose on integers between floats), it is a group by itself: else no change could undo, or
keep, that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx_ir as ir

from onnxq import catalog
from onnxq.checking.summary import weights_of
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Float, OpCategory, Precision
from onnxq.operator.nodes import find_input
from onnxq.qconfig import QConfigMapping
from onnxq.static.choosing.proposals import open_entry
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.times.time_model import Precisions

MOST_INTEGERS = (
    Precision.INT8,
    Precision.INT8_FLOAT_OUTPUT,
    Precision.DYNAMIC_INT8,
    Precision.WEIGHT_ONLY,
    Precision.FLOAT,
)
"""Precisions that a group may take, lowest first. FLOAT_BETWEEN_QDQ is not among them: ONNX
Runtime computes in float between Q/DQ nodes of 16 bits, in 2.4 to 4.3 times the time of
WEIGHT_ONLY, with as few bytes and fewer roundings (benchmarks/results/moves.md)."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a group.

    Attributes:
        inside: whether the integer kernel of the group's node carries it out.
        clamps: whether it bounds its input (Relu, Clip), which only integers do for nothing.
    """

    name: str
    op_type: str
    inside: bool = False
    clamps: bool = False

    def beside(self, precision: Precision) -> Precision:
        """The precision that it has beside an anchor of that precision."""
        if precision is Precision.INT8:
            return precision
        if precision is Precision.INT8_FLOAT_OUTPUT and self.inside and not self.clamps:
            return Precision.INT8  # a bias is added within the MatMul, whose result is float32
        return Precision.FLOAT

    def runs_beside(self, precision: Precision) -> Precision | None:
        """The same; None where another node carries it out."""
        beside = self.beside(precision)
        return None if self.inside and beside is Precision.INT8 else beside


@dataclass(frozen=True, slots=True)
class QuantizationGroup:
    """Nodes that take a precision together.

    Attributes:
        layer_type: words that groups of one layer type share: "Conv + Relu", "MatMul of
        activations".
        precisions: that it can take, FLOAT among them; in the order of Precision.
        weights: numbers in the constants of its anchor, which integers hold in a byte each.
    """

    anchor: Member
    others: tuple[Member, ...]
    layer_type: str
    precisions: tuple[Precision, ...]
    weights: int = 0

    @property
    def members(self) -> tuple[Member, ...]:
        """The anchor, and what goes with it."""
        return (self.anchor, *self.others)

    @property
    def lowest_precision(self) -> Precision:
        """The precision with the most integers that it can take: its errors are measured in it."""
        return next(precision for precision in MOST_INTEGERS if precision in self.precisions)


def quantization_groups_of(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    asked: QConfigMapping,
    begun: Sequence[Precisions] = (),
) -> tuple[QuantizationGroup, ...]:
    """The groups of a model, in graph order; nodes that the user named are in none."""
    parts = _Parts(decisions, asked, begun)
    order = [node for node, _ in walk(model.graph)]
    for node in order:
        parts.begin(node)
    for node in order:
        parts.follow(node)
    for node in reversed(order):
        parts.lead(node)
    return tuple(parts.groups(order))


class _Parts:
    """Nodes of each group while they are being found."""

    def __init__(
        self, decisions: Mapping[str, Decision], asked: QConfigMapping, begun: Sequence[Precisions]
    ) -> None:
        self._decisions, self._asked, self._begun = decisions, asked, begun
        self._anchor: dict[ir.Node, ir.Node] = {}
        self._precisions: dict[ir.Node, tuple[Precision, ...]] = {}

    def begin(self, node: ir.Node) -> None:
        """Begins a group with a node that computes, or whose weights can be stored."""
        if open_entry(node, self._asked) is None:
            return
        precisions = _precisions(node, self._decisions[node_name(node)])
        if len(precisions) > 1:
            self._anchor[node], self._precisions[node] = node, precisions

    def follow(self, node: ir.Node) -> None:
        """Puts a cheap node to the group that makes its first operand."""
        if self._is_free(node):
            sources = (value.producer() for value in node.inputs if value is not None)
            self._join(node, [self._anchor[s] for s in sources if s in self._anchor])

    def lead(self, node: ir.Node) -> None:
        """Puts a cheap node without one ahead of it to the first that reads it, or by itself."""
        if not self._is_free(node):
            return
        readers = node.successors()
        self._join(node, [self._anchor[r] for r in readers if r in self._anchor])
        if node not in self._anchor:
            self._alone(node)

    def _join(self, node: ir.Node, anchors: list[ir.Node]) -> None:
        """Puts a node to the first anchor; by itself where it begins in another precision."""
        if anchors and all(self._suits(node, anchors[0], precisions) for precisions in self._begun):
            self._anchor[node] = anchors[0]
        elif anchors:
            self._alone(node)

    def _alone(self, node: ir.Node) -> None:
        self._anchor[node], self._precisions[node] = node, (Precision.FLOAT, Precision.INT8)

    def _suits(self, node: ir.Node, anchor: ir.Node, precisions: Precisions) -> bool:
        """Whether the node has the precision there that it has beside such an anchor."""
        beside = precisions.get(node_name(anchor), Precision.FLOAT)
        wanted = self._member(node).runs_beside(beside or Precision.INT8)
        return precisions.get(node_name(node), Precision.FLOAT) is wanted

    def _is_free(self, node: ir.Node) -> bool:
        decision = self._decisions[node_name(node)]
        is_open = open_entry(node, self._asked) is not None
        return is_open and node not in self._anchor and isinstance(decision, Quantize)

    def groups(self, order: list[ir.Node]) -> Iterator[QuantizationGroup]:
        """The groups, in the order of their anchors."""
        others: dict[ir.Node, list[ir.Node]] = {anchor: [] for anchor in self._precisions}
        for node in order:
            anchor = self._anchor.get(node)
            if anchor is not None and anchor is not node:
                others[anchor].append(node)
        for node in order:
            if node in others:
                beside = tuple(self._member(other) for other in others[node])
                layer_type = _layer_type(node, self._decisions[node_name(node)], beside)
                yield QuantizationGroup(
                    self._member(node), beside, layer_type, self._precisions[node], weights_of(node)
                )

    def _member(self, node: ir.Node) -> Member:
        decision = self._decisions[node_name(node)]
        if isinstance(decision, Float):
            return Member(node_name(node), node.op_type)
        clamps = decision.rule.category is OpCategory.CLAMP
        return Member(node_name(node), node.op_type, decision.folded_into is not None, clamps)


def _precisions(node: ir.Node, decision: Decision) -> tuple[Precision, ...]:
    """Precisions that a node can take which begins a group; FLOAT alone for one that does not."""
    found = {Precision.FLOAT}
    computes = isinstance(decision, Quantize) and decision.rule.category is OpCategory.COMPUTE
    if isinstance(decision, Quantize) and computes and not decision.folded_into:
        found.add(Precision.INT8)
        if not decision.rule.needs_output:
            found.add(Precision.INT8_FLOAT_OUTPUT)
    operator = catalog.find(node.op_type, node.domain)
    dynamic = None if operator is None else operator.dynamic_rule(node)
    if dynamic is not None and not isinstance(dynamic, Float):
        found |= {Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY}.intersection(dynamic.precisions)
        if isinstance(decision, Quantize):
            found.add(Precision.INT8)  # a table, which is moved on integers too
    return tuple(precision for precision in Precision if precision in found)


def _layer_type(node: ir.Node, decision: Decision, beside: tuple[Member, ...]) -> str:
    """Words for groups alike: the node, whether it has weights, and the op types with it."""
    head = node.op_type
    if isinstance(decision, Quantize) and decision.rule.category is OpCategory.COMPUTE:
        varying = [find_input(node, slot) for slot in decision.rule.activations]
        if sum(v is not None and not v.is_initializer() for v in varying) > 1:
            head = f"{node.op_type} of activations"
        if decision.rule.channelwise:
            head = f"depthwise {node.op_type}"
    return " + ".join([head, *sorted({member.op_type for member in beside})])


# --- Layers that are measured together: those of one layer type, or a part of these


SEPARATORS = "/._"
"""Characters behind which exporters begin another part of a name."""
MOST_PARTS = 16
"""Parts that are measured beside the layer types: each is a pass over a few samples."""
PARTS_OF_ONE = 4
"""Parts that a layer type is measured in at once."""
LEAST_SHARE = 0.02
"""Share of all noise below which the parts of a layer type are not worth a look."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of the canonical float model that take their precisions together.

    Attributes:
        name: for people, and for journals: unique among the groups of a model.
    """

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layers:
    """Quantization groups of one layer type, in graph order; at least one."""

    groups: tuple[QuantizationGroup, ...]

    @property
    def name(self) -> str:
        """Name that a user understands: "Conv + Relu, /stem/conv", "4 x Gemm, /head/a .. d"."""
        first, last = self.groups[0], self.groups[-1]
        if len(self.groups) == 1:
            return f"{first.layer_type}, {first.anchor.name}"
        common = _beginning(first.anchor.name, last.anchor.name)
        end = max(common.rfind(separator) for separator in SEPARATORS) + 1
        ends = f"{first.anchor.name} .. {last.anchor.name[end:]}"
        return f"{len(self.groups)} x {first.layer_type}, {ends}"

    @property
    def weights(self) -> int:
        """Numbers in the constants of their anchors."""
        return sum(group.weights for group in self.groups)

    @property
    def node_group(self) -> NodeGroup:
        """The nodes, as what they cost is measured of them."""
        nodes = tuple(member.name for group in self.groups for member in group.members)
        return NodeGroup(self.name, nodes)

    def parts(self, count: int) -> tuple[Layers, ...]:
        """The layers in that many parts of about one length, in graph order."""
        count = min(count, len(self.groups))
        ends = [len(self.groups) * part // count for part in range(count + 1)]
        return tuple(Layers(self.groups[begin:end]) for begin, end in pairwise(ends))


def by_layer_type(groups: Iterable[QuantizationGroup]) -> tuple[Layers, ...]:
    """The layers of each layer type, which can take the same precisions, by first appearance."""
    found: dict[tuple[str, tuple[Precision, ...]], list[QuantizationGroup]] = {}
    for group in groups:
        found.setdefault((group.layer_type, group.precisions), []).append(group)
    return tuple(Layers(tuple(alike)) for alike in found.values())


def sensitive_parts(layer_sets: Iterable[Layers], noise: Mapping[str, float]) -> tuple[Layers, ...]:
    """Parts of the layers with the most noise, which are measured next."""
    known = [layers for layers in layer_sets if layers.name in noise and len(layers.groups) > 1]
    least = LEAST_SHARE * sum(noise.values())
    dear = [layers for layers in known if noise[layers.name] >= least]
    dear.sort(key=lambda layers: -noise[layers.name])
    found: list[Layers] = []
    for layers in dear:
        if len(found) + PARTS_OF_ONE <= MOST_PARTS:
            found += layers.parts(PARTS_OF_ONE)
    return tuple(found)


def _beginning(one: str, other: str) -> str:
    """The characters that both texts begin with."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]
