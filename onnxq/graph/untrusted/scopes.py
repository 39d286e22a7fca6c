"""Scopes of a model: the main graph, bodies in nodes, functions; walked without recursion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.walk import bodies

_TENSORS = (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS)


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph or function, and what is around it.

    Attributes:
        graph: whose nodes and values these are.
        opsets: domain -> version, for its nodes.
        outer: the scope around a body; None around the main graph and functions.
        depth: of bodies around it; 0 for the main graph and functions.
    """

    graph: ir.Graph | ir.Function
    opsets: dict[str, int]
    outer: Scope | None = None
    depth: int = 0


def scopes(model: ir.Model) -> Iterator[Scope]:
    """Every scope, outer ones before those in them."""
    waiting = [
        Scope(f, {**model.opset_imports, **f.opset_imports}) for f in model.functions.values()
    ]
    waiting.append(Scope(model.graph, model.opset_imports))
    while waiting:
        scope = waiting.pop()
        yield scope
        waiting.extend(
            Scope(body, scope.opsets, scope, scope.depth + 1)
            for node in scope.graph
            for body in bodies(node)
        )


def scoped_nodes(model: ir.Model) -> Iterator[tuple[ir.Node, Scope]]:
    """Every node with its scope, functions and bodies included."""
    for scope in scopes(model):
        for node in scope.graph:
            yield node, scope


def all_tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """(what to call it, tensor) of all initializers and of all tensors in attributes."""
    for scope in scopes(model):
        if isinstance(scope.graph, ir.Graph):
            for name, value in scope.graph.initializers.items():
                if value.const_value is not None:
                    yield name, value.const_value
        for node in scope.graph:
            name = next((y.name for y in node.outputs if y.name), node.op_type)
            for tensor in _held_by(node):
                yield name, tensor


def _held_by(node: ir.Node) -> Iterator[ir.TensorProtocol]:
    for attribute in node.attributes.values():
        held = attribute.value
        if attribute.type in _TENSORS and held is not None:
            yield from held if isinstance(held, list | tuple) else (held,)
