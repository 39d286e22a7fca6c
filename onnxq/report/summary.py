"""A Summary: decisions counted per op type and grouped by reason, in the order of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import QuantizeDynamic
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Float
from onnxq.static.placing.candidates import DYNAMICALLY
from onnxq.static.placing.decision import Decision, Quantize

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """One node: `words` is how it is quantized, or why it stays in float.

    Attributes:
        in_integers: static quantization runs it on codes.
        dynamic: dynamic quantization stores its weights as integers or float16.
    """

    name: str
    op_type: str
    in_integers: bool
    words: str
    dynamic: bool = False

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
class Reason:
    """Nodes of one op type that have the same words: why they stay in float, or how they run."""

    op_type: str
    words: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """Summary of what becomes of every node of a model."""

    nodes: tuple[NodeDecision, ...]

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
    def dynamic(self) -> list[Reason]:
        """Nodes that are quantized dynamically, by how, the most frequent first."""
        return self._grouped("dynamic")

    @property
    def reasons(self) -> list[Reason]:
        """Why nodes stay in float, the most frequent first."""
        return self._grouped("float")

    def _grouped(self, decision: str) -> list[Reason]:
        groups: dict[tuple[str, str], list[str]] = {}
        for node in self.nodes:
            if node.decision == decision:
                groups.setdefault((node.op_type, node.words), []).append(node.name)
        ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
        return [Reason(op_type, words, tuple(names)) for (op_type, words), names in ordered]


def summarize(
    model: ir.Model,
    decisions: Mapping[str, Decision | QuantizeDynamic],
    dynamic: Mapping[str, QuantizeDynamic] | None = None,
) -> Summary:
    """The decisions of a Prepared or a plan about the nodes of its canonical model.

    Args:
        model: canonical.
        decisions: of a Prepared, a Plan or a DynamicPlan.
        dynamic: of a Plan: the nodes that are quantized dynamically beside it.
    """
    nodes = []
    for node, _ in walk(model.graph):
        name = node_name(node)
        decision = (dynamic or {}).get(name, decisions[name])
        words = decision.reason if isinstance(decision, Float) else decision.how
        later = isinstance(decision, Float) and decision.reason == DYNAMICALLY  # of a Prepared
        nodes.append(
            NodeDecision(
                name,
                op_label(node),
                isinstance(decision, Quantize),
                words,
                isinstance(decision, QuantizeDynamic) or later,
            )
        )
    return Summary(tuple(nodes))


def op_label(node: ir.Node) -> str:
    """Conv, or com.microsoft.Gelu outside of ai.onnx."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type
