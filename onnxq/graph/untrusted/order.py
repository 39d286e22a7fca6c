"""Checks the topological order of nodes and the depth of subgraphs."""

import itertools
from collections.abc import Iterator

import onnx_ir as ir

from onnxq.graph.untrusted.problem import Problem, label
from onnxq.graph.untrusted.scopes import scopes
from onnxq.graph.walk import bodies


def check_order(model: ir.Model) -> Iterator[Problem]:
    """Finds a node that reads the output of a later node."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        node = out_of_order(graph)
        if node is not None:
            yield Problem(
                "the model's nodes are not in topological order: "
                f"{label(node)} reads the output of a later node",
                "Call model.graph.sort() first.",
            )


def out_of_order(graph: ir.Graph) -> ir.Node | None:
    """The first node that reads the output of a later node; reads of its subgraphs count."""
    seen: set[ir.Node] = set()
    waiting: list[tuple[Iterator[ir.Node], ir.Node | None]] = [(iter(graph), None)]
    while waiting:
        nodes, holder = waiting[-1]
        node = next(nodes, None)
        if node is None:
            waiting.pop()
            if holder is not None:
                seen.add(holder)  # behind its bodies, which cannot read its results
            continue
        producers = (x.producer() for x in node.inputs if x is not None)
        if any(p is not None and p not in seen for p in producers):
            return node
        inner = bodies(node)
        if inner:
            waiting.append((itertools.chain.from_iterable(inner), node))
        else:
            seen.add(node)
    return None


# --- Depth of bodies in bodies, over which later walks recurse


MAX_DEPTH = 30
"""Bodies inside bodies. Protobuf, hence ONNX Runtime, reads 100 messages inside each other, and a
body takes three; onnx_ir copies bodies by recursion, in some 8 of Python's 1,000 frames each."""


def check_depth(model: ir.Model) -> Iterator[Problem]:
    """Finds a subgraph nested deeper than MAX_DEPTH."""
    for scope in scopes(model):
        if scope.depth > MAX_DEPTH:
            yield Problem(
                f"graph '{scope.graph.name}' lies inside {scope.depth} nodes (If, Loop, Scan ...); "
                f"onnxq reads {MAX_DEPTH}",
                "Join the conditions, or leave the inner ones to a model of their own.",
            )
            return
