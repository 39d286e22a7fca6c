"""Order of nodes: each behind those that it reads from, which copying needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.door.problem import Problem, label
from onnxq.graph.door.scopes import bodies

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir


def check_order(model: ir.Model) -> Iterator[Problem]:
    """Finds a node that reads what a later one gives."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        node = out_of_order(graph)
        if node is not None:
            yield Problem(
                "the model's nodes are not in topological order: "
                f"{label(node)} reads what a later one gives",
                "Call model.graph.sort() first.",
            )


def out_of_order(graph: ir.Graph) -> ir.Node | None:
    """The first node that reads what a later one gives; what bodies read from outside counts."""
    seen: set[ir.Node] = set()
    waiting = [iter(graph)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        producers = (x.producer() for x in node.inputs if x is not None)
        if any(p is not None and p not in seen for p in producers):
            return node
        seen.add(node)  # before its bodies, which may not read its results
        waiting += [iter(body) for body in reversed(bodies(node))]
    return None
