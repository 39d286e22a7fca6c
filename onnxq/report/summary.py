"""A Summary: decisions counted per op type and grouped by reason, in the order of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import Float
from onnxq.stages.decision import Decision, node_name, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """One node: `words` is how it runs in integers, or why it stays in float."""

    name: str
    op_type: str
    in_integers: bool
    words: str


@dataclass(frozen=True, slots=True)
class Count:
    """Nodes of one op type."""

    integers: int
    floats: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Nodes of one op type that stay in float for the same reason."""

    op_type: str
    words: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """What becomes of every node of a model."""

    nodes: tuple[NodeDecision, ...]

    @property
    def counts(self) -> dict[str, Count]:
        """Op type -> nodes in integers and in float, in the order of first appearance."""
        counts: dict[str, Count] = {}
        for node in self.nodes:
            old = counts.get(node.op_type, Count(0, 0))
            counts[node.op_type] = Count(
                old.integers + node.in_integers, old.floats + (not node.in_integers)
            )
        return counts

    @property
    def reasons(self) -> list[Reason]:
        """Why nodes stay in float, the most frequent first."""
        groups: dict[tuple[str, str], list[str]] = {}
        for node in self.nodes:
            if not node.in_integers:
                groups.setdefault((node.op_type, node.words), []).append(node.name)
        ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
        return [Reason(op_type, words, tuple(names)) for (op_type, words), names in ordered]


def summarize(model: ir.Model, decisions: Mapping[str, Decision]) -> Summary:
    """The decisions of a Prepared or a Plan about the nodes of its canonical model."""
    nodes = []
    for node, _ in walk(model.graph):
        decision = decisions[node_name(node)]
        stays = isinstance(decision, Float)
        words = decision.reason if isinstance(decision, Float) else decision.how
        nodes.append(NodeDecision(node_name(node), op_label(node), not stays, words))
    return Summary(tuple(nodes))


def op_label(node: ir.Node) -> str:
    """Conv, or com.microsoft.Gelu outside of ai.onnx."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type
