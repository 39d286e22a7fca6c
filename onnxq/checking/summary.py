"""A Summary: decisions counted per op type and grouped by precision and kind of reason.

Nodes are those of the float model, here and in every count that a person reads.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.checking.findings import Execution
from onnxq.core.brief import brief
from onnxq.core.reason import Reason
from onnxq.dtypes import UINT8, QDType
from onnxq.dynamic.dynamic_decision import DynamicDecision, QuantizeDynamic
from onnxq.graph.walk import node_name, op_label, value_name, walk
from onnxq.operator import Float, OpCategory, Precision
from onnxq.operator.reasons import InGroupsAlready
from onnxq.ort.node_kinds import MATMUL_NBITS
from onnxq.page.card import card_of, counts
from onnxq.static.choosing.node_precisions import NodePrecisions
from onnxq.static.insertion.check_types import IN_INTEGERS
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.reasons import FloatBetweenWideIntegers

MOVING = (OpCategory.MOVEMENT, OpCategory.CLAMP)
"""Categories whose nodes run on integers of 16 bits, too."""


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """One node, and how it is quantized or why it stays in float.

    Attributes:
        in_integers: static quantization runs it on integers.
        dynamic: its weights alone are stored as integers or float16.
        part_of: node whose integer kernel computes it, too; empty: its own.
        constants: elements of its constant matrices.
    """

    name: str
    op_type: str
    in_integers: bool
    why: Reason
    dynamic: bool = False
    precision: Precision = Precision.FLOAT
    part_of: str = ""
    constants: int = 0

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
    """Nodes that have the same precision for the same kind of reason.

    Attributes:
        why: the reason of the worst node.
        op_types: op type -> how many, the most frequent first.
        nodes: names, the worst first; those that are as bad by op type.
        is_mixed: whether figures or names differ in the nodes' reasons.
        constants: elements of the nodes' constant matrices.
    """

    precision: Precision
    why: Reason
    op_types: Mapping[str, int]
    nodes: tuple[str, ...]
    is_mixed: bool = False
    constants: int = 0

    @property
    def words(self) -> str:
        """The reason of the worst node, in words, and how many others have one like it."""
        if not self.is_mixed:
            return self.why.words
        if self.why.severity:
            return f"{self.why.words} (the worst of {len(self.nodes)})"
        return f"{self.why.words} (and {len(self.nodes) - 1} likewise)"

    @property
    def ops(self) -> str:
        """One op type alone; of several, each with its count."""
        if len(self.op_types) == 1:
            return next(iter(self.op_types))
        return ", ".join(f"{op} ({count})" for op, count in self.op_types.items())


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Nodes of the float model by what becomes of them.

    Attributes:
        integers: ONNX Runtime computes them in integers.
        stored: it computes them in float, and the file is not the float model's there.
        floats: untouched.
    """

    integers: int
    stored: int
    floats: int


@dataclass(frozen=True)
class Summary:
    """Summary of what becomes of every node of a model."""

    nodes: tuple[NodeDecision, ...]

    __repr__ = brief

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
        """Nodes by precision and kind of reason, the most frequent first, floats last."""
        found: dict[tuple[Precision, object], list[NodeDecision]] = {}
        for node in self.nodes:
            found.setdefault((node.precision, node.why.kind), []).append(node)
        groups = [_group(precision, members) for (precision, _), members in found.items()]
        totals = Counter(node.precision for node in self.nodes)

        def place(group: Group) -> tuple[bool, int, str, int, int]:
            precision, most = group.precision, next(iter(group.op_types.values()))
            is_float = precision is Precision.FLOAT
            return is_float, -totals[precision], precision.value, -len(group.nodes), -most

        return sorted(groups, key=place)

    @property
    def worst_float(self) -> Group | None:
        """The group in float with the most constants, then nodes; None: none that could be less."""
        groups = [g for g in self.groups if g.precision is Precision.FLOAT and not g.why.EXPECTED]
        return max(groups, key=lambda g: (g.constants, len(g.nodes)), default=None)

    def node_counts(self, runs: Execution | None) -> NodeCounts:
        """Counts the nodes by what becomes of them.

        Args:
            runs: what ONNX Runtime runs of the quantized model; None: it was not tried.
        """
        fallen = set() if runs is None else {each.name for each in runs.fallbacks}
        computes = set(IN_INTEGER_KERNELS)
        if runs is not None and MATMUL_NBITS in runs.integer_nodes:
            computes.add(Precision.WEIGHT_ONLY_GROUPWISE)
        integers = sum(
            node.precision in computes
            and node.op_type != "com.microsoft.MoE"  # QMoE's kernel dequantizes weights
            and not isinstance(node.why, InGroupsAlready)
            and not fallen & {node.name, node.part_of}
            for node in self.nodes
        )
        floats = sum(
            node.precision is Precision.FLOAT or isinstance(node.why, InGroupsAlready)
            for node in self.nodes
        )
        return NodeCounts(integers, len(self.nodes) - integers - floats, floats)


IN_INTEGER_KERNELS = (Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.DYNAMIC_INT8)


def _group(precision: Precision, members: list[NodeDecision]) -> Group:
    """The group of nodes of one kind."""
    by_op = Counter(node.op_type for node in members)
    order = {op: place for place, (op, _) in enumerate(by_op.most_common())}
    ordered = sorted(members, key=lambda node: (-node.why.severity, order[node.op_type]))
    return Group(
        precision,
        ordered[0].why,
        dict(by_op.most_common()),
        tuple(node.name for node in ordered),
        len({node.why for node in members}) > 1,
        sum(node.constants for node in members),
    )


def summarize(model: ir.Model, decisions: Mapping[str, DynamicDecision]) -> Summary:
    """The decisions of a DynamicPlan about the nodes of its canonical model."""
    nodes = []
    for node, _ in walk(model.graph):
        decision = decisions[node_name(node)]
        if isinstance(decision, QuantizeDynamic):
            precision, why = decision.precision, decision.how
        else:
            precision, why = _left(decision.reason)
        name, label, stored = node_name(node), op_label(node), precision.stores_weights_alone
        nodes.append(
            NodeDecision(name, label, False, why, stored, precision, constants=weights_of(node))
        )
    return Summary(tuple(nodes))


def summarize_precisions(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    precisions: NodePrecisions,
    dtypes: Mapping[str, QDType],
) -> Summary:
    """Summary of a Prepared or a Plan; the decision of a node that the data left unnumbered."""
    nodes = []
    for node, _ in walk(model.graph):
        name = node_name(node)
        decision, chosen = decisions[name], precisions[name]
        precision, why = chosen.precision, chosen.reason
        if isinstance(decision, Float) and not precision.stores_weights_alone:
            precision, why = _left(decision.reason)
        wide = _wide_type(node, decision, decisions, dtypes)
        if wide is not None:
            precision, why = Precision.FLOAT_BETWEEN_QDQ, FloatBetweenWideIntegers(str(wide))
        elif (
            isinstance(decision, Quantize)
            and decision.rule.precision is Precision.FLOAT_BETWEEN_QDQ
        ):
            precision = Precision.FLOAT_BETWEEN_QDQ
        integers = precision in (Precision.INT8, Precision.INT8_FLOAT_OUTPUT)
        part_of = decision.folded_into if isinstance(decision, Quantize) else ""
        nodes.append(
            NodeDecision(
                name,
                op_label(node),
                integers,
                why,
                precision.stores_weights_alone,
                precision,
                part_of or "",
                weights_of(node),
            )
        )
    return Summary(tuple(nodes))


def _left(why: Reason) -> tuple[Precision, Reason]:
    """The precision of a node that stays as it was given."""
    groupwise = isinstance(why, InGroupsAlready)
    return Precision.WEIGHT_ONLY_GROUPWISE if groupwise else Precision.FLOAT, why


def weights_of(node: ir.Node) -> int:
    """Elements of float constants with two axes or more."""
    tensors = [v.const_value for v in node.inputs if v is not None and v.is_initializer()]
    found = [t for t in tensors if t is not None and t.dtype == ir.DataType.FLOAT]
    return sum(math.prod(t.shape.numpy()) for t in found if len(t.shape) > 1)


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
