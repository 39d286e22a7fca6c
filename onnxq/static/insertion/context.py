"""Context of the deciders: the model, the operators' rules for its nodes, and the wishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Float, OpCategory, Rule
from onnxq.qconfig import QConfigMapping
from onnxq.targets import Target


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a model's nodes: each operator is asked once for each node, and its answer kept.

    Attributes:
        by_name: node name -> the rule, or why its operator leaves it in float; nodes without an
            operator are missing.
    """

    by_name: Mapping[str, Rule | Float]

    @classmethod
    def of_model(cls, model: ir.Model) -> Rules:
        """Rules of all nodes of a canonical model, subgraphs included."""
        found = ((n, catalog.find(n.op_type, n.domain)) for n, _ in walk(model.graph))
        return cls({node_name(n): operator.rule(n) for n, operator in found if operator})

    def verdict(self, node: ir.Node) -> Rule | Float | None:
        """The rule, or why its operator leaves the node in float; None: it has no operator."""
        return self.by_name.get(node_name(node))

    def find(self, node: ir.Node) -> Rule | None:
        """The rule; None: the node stays in float."""
        found = self.verdict(node)
        return found if isinstance(found, Rule) else None

    def category(self, node: ir.Node) -> OpCategory | None:
        """Category of the node; None: it stays in float."""
        rule = self.find(node)
        return None if rule is None else rule.category


@dataclass(frozen=True, eq=False)
class Context:
    """A canonical model, and what is wanted of it.

    Attributes:
        quantized_output: outputs that are read as integers.
    """

    model: ir.Model
    rules: Rules
    target: Target
    asked: QConfigMapping
    quantized_output: tuple[str, ...] = ()
    feedback: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def order(self) -> list[tuple[ir.Node, str | None]]:
        """(node, the loop in whose body it stands, or None), in graph order."""
        return list(walk(self.model.graph))
