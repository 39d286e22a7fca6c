"""What is decided of a node, and how the stages walk over nodes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnxq.observers import ObserverSpec
from onnxq.operator import Float, Form, Role, Rule, WeightSlot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxq.operator import AttributeValue
    from onnxq.qconfig import QConfigMapping


@dataclass(frozen=True, slots=True)
class Quantize:
    """A node runs in integers.

    Attributes:
        rule: what its operator says of it.
        how: in words, for people.
        folded_into: the node whose integer kernel carries this one out (a Relu after a Conv), or
            None.
        results: tensors behind this node and what is folded into it that get a QuantizeLinear.
    """

    rule: Rule
    how: str
    folded_into: str | None = None
    results: tuple[str, ...] = ()


Decision = Quantize | Float


def value_name(value: ir.Value) -> str:
    """The value's name; canonical graphs name every value."""
    assert value.name
    return value.name


def node_name(node: ir.Node) -> str:
    """The node's name; canonical graphs name every node."""
    assert node.name
    return node.name


def attribute_values(node: ir.Node) -> dict[str, AttributeValue]:
    """As kernels take them: name -> value, without references to a function's attributes."""
    return {name: a.value for name, a in node.attributes.items() if not a.is_ref()}


def weight_observer(node: ir.Node, rule: Rule, qconfig: QConfigMapping) -> ObserverSpec:
    """The observer of the node's weight: the one named for the tensor, else the node's.

    Args:
        node: one that the qconfig quantizes.
        rule: its operator's, with a weight.
        qconfig: what was asked for.
    """
    assert rule.weight is not None
    value = node.inputs[rule.weight.slot]
    assert value is not None
    named = qconfig.for_tensor(value_name(value))
    entry = qconfig.for_node(node_name(node), node.op_type)
    assert entry is not None  # a node without an entry is float
    return named if isinstance(named, ObserverSpec) else entry.weight_observer


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that a node holds: branches of If, bodies of Loop and Scan."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def walk(graph: ir.Graph, loop: str | None = None) -> Iterator[tuple[ir.Node, str | None]]:
    """Nodes in the order in which they run, those of subgraphs before the node that holds them.

    Yields:
        (node, name of the innermost Loop or Scan around it or None).
    """
    for node in graph:
        inner = loop if node.op_type == "If" else f"{node.op_type} '{node.name}'"
        for subgraph in subgraphs(node):
            yield from walk(subgraph, inner)
        yield node, loop


def tensor_names(model: ir.Model) -> list[str]:
    """Names that a qconfig may use for tensors: inputs, initializers, results, subgraphs' too."""
    names = [value_name(v) for v in model.graph.inputs]
    for graph in model.graphs():
        names += graph.initializers
    names += [v.name for node, _ in walk(model.graph) for v in node.outputs if v.name]
    return list(dict.fromkeys(names))


def decision_to_dict(decision: Decision) -> dict[str, object]:
    """Plain values that JSON can hold."""
    if isinstance(decision, Float):
        return {"float": decision.reason}
    rule = dataclasses.asdict(decision.rule)
    if decision.rule.clamp is not None:  # JSON has no infinity
        rule["clamp"] = [bound if math.isfinite(bound) else None for bound in decision.rule.clamp]
    rule["role"], rule["form"] = decision.rule.role.value, decision.rule.form.value
    return {
        "quantize": decision.how,
        "folded_into": decision.folded_into,
        "results": list(decision.results),
        "rule": rule,
    }


def decision_from_dict(data: Mapping[str, object]) -> Decision:
    """The inverse of decision_to_dict.

    Raises:
        KeyError, TypeError, ValueError: the data are no decision.
    """
    if "float" in data:
        return Float(str(data["float"]))
    fields = data["rule"]
    if not isinstance(fields, dict):
        raise TypeError("rule")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    values |= {"role": Role(fields["role"]), "form": Form(fields["form"])}
    if fields["weight"] is not None:
        values["weight"] = WeightSlot(**fields["weight"])
    if fields["clamp"] is not None:
        low, high = fields["clamp"]
        values["clamp"] = (-math.inf if low is None else low, math.inf if high is None else high)
    results, folded_into = data["results"], data["folded_into"]
    if not isinstance(results, list) or not isinstance(folded_into, str | None):
        raise TypeError("results or folded_into")
    return Quantize(Rule(**values), str(data["quantize"]), folded_into, tuple(results))
