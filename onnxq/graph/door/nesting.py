"""Depth of bodies in bodies and of functions in functions: later walks recurse over both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.door.problem import DAMAGED, Problem
from onnxq.graph.door.scopes import all_nodes, scopes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

MAX_DEPTH = 30
"""Bodies inside bodies. Protobuf, hence ONNX Runtime, reads 100 messages inside each other, and a
body takes three; onnx_ir copies bodies by recursion, in some 8 of Python's 1,000 frames each."""


def check_depth(model: ir.Model) -> Iterator[Problem]:
    """Finds a body below more than MAX_DEPTH others."""
    for scope in scopes(model):
        if scope.depth > MAX_DEPTH:
            yield Problem(
                f"graph '{scope.graph.name}' lies inside {scope.depth} nodes (If, Loop, Scan ...); "
                f"onnxq reads {MAX_DEPTH}",
                "Join the conditions, or leave the inner ones to a model of their own.",
            )
            return


def check_function_circles(model: ir.Model) -> Iterator[Problem]:
    """Finds a function that calls itself, by whatever way round."""
    calls: dict[ir.OperatorIdentifier, set[ir.OperatorIdentifier]] = {
        name: set() for name in model.functions
    }
    owner = {id(function.graph): name for name, function in model.functions.items()}
    for node, scope in all_nodes(model):
        while scope.outer is not None:
            scope = scope.outer
        graph = scope.graph
        name = owner.get(id(getattr(graph, "graph", graph)))
        if name is not None and node.op_identifier() in calls:
            calls[name].add(node.op_identifier())
    left = dict(calls)
    while ready := [name for name, others in left.items() if not others & left.keys()]:
        for name in ready:
            del left[name]
    if left:
        domain, circular, _ = next(iter(left))
        yield Problem(f"function '{domain}.{circular}' calls itself, or one that does", DAMAGED)


def check_chains_of_functions(model: ir.Model) -> Iterator[Problem]:
    """Finds functions that call each other more than MAX_DEPTH deep; there is no circle."""
    depth: dict[ir.OperatorIdentifier, int] = {}
    waiting = list(model.functions)
    inner = {
        name: {n.op_identifier() for n in function.all_nodes()} & model.functions.keys()
        for name, function in model.functions.items()
    }
    while waiting:
        name = waiting[-1]
        open_calls = [other for other in inner[name] if other not in depth]
        if open_calls:
            waiting += open_calls
            continue
        waiting.pop()
        depth[name] = 1 + max((depth[other] for other in inner[name]), default=0)
        if depth[name] > MAX_DEPTH:
            yield Problem(
                f"function '{name[0]}.{name[1]}' calls others {depth[name]} deep; onnxq reads "
                f"{MAX_DEPTH}",
                "Export the model without functions, or inline them (onnx.inliner).",
            )
            return
