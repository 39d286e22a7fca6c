"""Values: each has a name where it needs one, and somebody who makes it, once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.untrusted.problem import DAMAGED, Problem, label
from onnxq.graph.untrusted.scopes import Scope, scopes

if TYPE_CHECKING:
    from collections.abc import Iterator


def check_origins(model: ir.Model) -> Iterator[Problem]:
    """Finds a value that a node reads, or a graph gives, and that nobody around it makes."""
    for scope in scopes(model):
        visible = set(_around(scope))
        for node in scope.graph:
            for value in node.inputs:
                if value is not None and _owner(value) not in visible:
                    yield Problem(
                        f"input '{value.name}' of node {label(node)} is neither a graph input, nor "
                        "an initializer, nor the output of a node around it",
                        "The model is invalid; export it again.",
                    )
        for value in scope.graph.outputs:
            if _owner(value) != id(_plain(scope)):
                yield Problem(
                    f"output '{value.name}' of graph '{scope.graph.name}' is made by no node of it",
                    "Make it an output of one, of an Identity, say.",
                )


def check_ends(model: ir.Model) -> Iterator[Problem]:
    """Finds an input or output without a name, one that is there twice, an input without a type."""
    for scope in scopes(model):
        graph = scope.graph
        inputs, outputs = ([value.name for value in ends] for ends in (graph.inputs, graph.outputs))
        for what, names in (("input", inputs), ("output", outputs)):
            if not all(names):
                place = next(i for i, name in enumerate(names) if not name)
                yield Problem(f"{what} {place} of graph '{graph.name}' has no name")
        twice = [name for name, count in Counter(inputs).items() if count > 1]
        if twice:  # an output may be given twice
            yield Problem(f"graph '{graph.name}' has two inputs '{twice[0]}'")
    for value in model.graph.inputs:
        if value.dtype in (None, ir.DataType.UNDEFINED) and not value.is_initializer():
            yield Problem(f"input '{value.name}' of the model has no type")


def check_names_are_unique(model: ir.Model) -> Iterator[Problem]:
    """Finds a name that two values of one graph have: who reads it could mean either."""
    for scope in scopes(model):
        owners: dict[str, ir.Value] = {}
        graph = scope.graph
        held = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
        made = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *held, *made):
            if value.name and owners.setdefault(value.name, value) is not value:
                yield Problem(
                    f"two values of graph '{graph.name}' are named '{value.name}'", DAMAGED
                )


def _plain(scope: Scope) -> ir.Graph:
    """The graph itself, also of a function."""
    return scope.graph.graph if isinstance(scope.graph, ir.Function) else scope.graph


def _around(scope: Scope | None) -> Iterator[int]:
    while scope is not None:
        yield id(_plain(scope))
        scope = scope.outer


def _owner(value: ir.Value) -> int | None:
    """The graph that makes a value, as an input, an initializer or the result of a node."""
    producer = value.producer()
    if producer is None and not (value.is_graph_input() or value.is_initializer()):
        return None
    graph = value.graph if producer is None else producer.graph
    if isinstance(graph, ir.Function):
        graph = graph.graph
    return None if graph is None else id(graph)
