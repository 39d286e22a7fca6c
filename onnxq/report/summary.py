"""A Summary: decisions counted per op type and grouped by precision and reason, in graph order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.core.brief import brief
from onnxq.dtypes import UINT8
from onnxq.dynamic.dynamic_decision import QuantizeDynamic
from onnxq.graph.walk import node_name, op_label, value_name, walk
from onnxq.operator import Float, OpCategory, Precision
from onnxq.page.card import card_of, counts
from onnxq.static.insertion.check_types import IN_INTEGERS
from onnxq.static.insertion.decision import Quantize
from onnxq.static.reasons import FloatBetweenWideIntegers

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.core.reason import Reason
    from onnxq.dtypes import QDType
    from onnxq.dynamic.dynamic_decision import DynamicDecision
    from onnxq.static.choosing.choices import Choices
    from onnxq.static.insertion.decision import Decision


MOVING = (OpCategory.MOVEMENT, OpCategory.CLAMP)
"""Categories whose nodes run on integers of 16 bits, too."""


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """One node, and how it is quantized or why it stays in float.

    Attributes:
        in_integers: static quantization runs it on integers.
        dynamic: dynamic quantization stores its weights as integers or float16.
        precision: that it has.
        why: it has that precision.
    """

    name: str
    op_type: str
    in_integers: bool
    why: Reason
    dynamic: bool = False
    precision: Precision = Precision.FLOAT

    @property
    def words(self) -> str:
        """How it is quantized, or why it stays in float, for people."""
        return self.why.words

    @property
    def decision(self) -> str:
        """Integers, dynamic or float, in one word."""
        if self.in_integers:
            return "integers"
        return "dynamic" if self.dynamic else "float"


@dataclass(frozen=True, slots=True)
class Count:
    """Nodes of one op type."""

    integers: int
    floats: int
    dynamic: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that have the same precision for the same reason.

    Attributes:
        op_types: op type -> how many, the most frequent first.
        nodes: names, by op type.
    """

    precision: Precision
    why: Reason
    op_types: Mapping[str, int]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """Summary of what becomes of every node of a model."""

    nodes: tuple[NodeDecision, ...]

    def __repr__(self) -> str:
        return brief(self)

    def _repr_html_(self) -> str:
        return card_of(self, counts("precision", self.precisions))

    @property
    def counts(self) -> dict[str, Count]:
        """Op type -> nodes in integers and in float, in the order of first appearance."""
        counts: dict[str, Count] = {}
        for node in self.nodes:
            old = counts.get(node.op_type, Count(0, 0))
            counts[node.op_type] = Count(
                old.integers + (node.decision == "integers"),
                old.floats + (node.decision == "float"),
                old.dynamic + node.dynamic,
            )
        return counts

    @property
    def precisions(self) -> dict[str, int]:
        """Precision -> nodes that have it, the most frequent first."""
        return dict(Counter(node.precision.value for node in self.nodes).most_common())

    @property
    def groups(self) -> list[Group]:
        """Nodes by precision and reason, the most frequent first, floats last."""
        found: dict[tuple[Precision, Reason], dict[str, list[str]]] = {}
        for node in self.nodes:
            by_op = found.setdefault((node.precision, node.why), {})
            by_op.setdefault(node.op_type, []).append(node.name)
        groups = []
        for (precision, why), by_op in found.items():
            ordered = sorted(by_op.items(), key=lambda item: -len(item[1]))
            op_types = {op: len(names) for op, names in ordered}
            nodes = tuple(name for _, names in ordered for name in names)
            groups.append(Group(precision, why, op_types, nodes))
        totals = Counter(node.precision for node in self.nodes)

        def place(group: Group) -> tuple[bool, int, str, int, int]:
            precision, most = group.precision, next(iter(group.op_types.values()))
            is_float = precision is Precision.FLOAT
            return is_float, -totals[precision], precision.value, -len(group.nodes), -most

        return sorted(groups, key=place)


def summarize(model: ir.Model, decisions: Mapping[str, DynamicDecision]) -> Summary:
    """The decisions of a DynamicPlan about the nodes of its canonical model."""
    nodes = []
    for node, _ in walk(model.graph):
        decision = decisions[node_name(node)]
        made = isinstance(decision, QuantizeDynamic)
        precision = decision.precision if isinstance(decision, QuantizeDynamic) else Precision.FLOAT
        why = decision.reason if isinstance(decision, Float) else decision.how
        nodes.append(NodeDecision(node_name(node), op_label(node), False, why, made, precision))
    return Summary(tuple(nodes))


def summarize_choices(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    choices: Choices,
    dtypes: Mapping[str, QDType],
) -> Summary:
    """The choices of a Prepared or a Plan; the decision of a node that the data left unnumbered."""
    nodes = []
    for node, _ in walk(model.graph):
        name = node_name(node)
        decision, choice = decisions[name], choices[name]
        dynamic = choice.precision.stores_weights_alone
        precision, why = choice.precision, choice.reason
        if isinstance(decision, Float) and not dynamic:
            precision, why = Precision.FLOAT, decision.reason
        wide = _wide_type(node, decision, decisions, dtypes)
        if wide is not None:
            precision, why = Precision.FLOAT_BETWEEN_QDQ, FloatBetweenWideIntegers(str(wide))
        integers = isinstance(decision, Quantize) and wide is None
        nodes.append(NodeDecision(name, op_label(node), integers, why, dynamic, precision))
    return Summary(tuple(nodes))


def _wide_type(
    node: ir.Node,
    decision: Decision,
    decisions: Mapping[str, Decision],
    dtypes: Mapping[str, QDType],
) -> QDType | None:
    """The type beside which a node computes in float; None: it is in integers, or no such node."""
    if not isinstance(decision, Quantize):
        return None
    owner = decisions[decision.folded_into] if decision.folded_into else decision
    if not isinstance(owner, Quantize) or owner.rule.category in MOVING:
        return None
    read = [node.inputs[slot] for slot in decision.rule.activations]
    tensors = [*(value_name(v) for v in read if v is not None), *owner.results]
    return next((dtypes[t] for t in tensors if dtypes.get(t, UINT8) not in IN_INTEGERS), None)
