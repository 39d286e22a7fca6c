"""Functions: none calls itself, and inlined they are no more than can be read.

Every stage reads a model whose functions are inlined. Two calls of a function that itself calls
another twice, and so on, are a small file and 2^n nodes.
"""

from __future__ import annotations

from collections import Counter
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from onnxq.graph.untrusted.problem import Problem
from onnxq.graph.untrusted.scopes import scoped_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

MAX_NODES = 1_000_000
"""Nodes of a model, functions inlined; ten times those of the largest that exporters write."""


def check_functions(model: ir.Model) -> Iterator[Problem]:
    """Finds functions that call each other in a circle, or that are too much when inlined."""
    if not model.functions:
        return
    calls = _calls(model)
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        domain, name, _ = error.args[1][0]
        yield Problem(f"function '{domain}.{name}' calls itself, or one that does")
        return
    sizes: dict[ir.OperatorIdentifier | None, int] = {}
    for caller in order:  # who is called comes first; an operator is one node
        called = calls.get(caller)
        sizes[caller] = 1 if called is None else sum(sizes[one] * n for one, n in called.items())
    if sizes[None] > MAX_NODES:
        yield Problem(
            f"with its functions inlined the model has {sizes[None]:,} nodes; onnxq reads "
            f"{MAX_NODES:,}",
            "Export the model without functions.",
        )


def _calls(model: ir.Model) -> dict[ir.OperatorIdentifier | None, Counter[ir.OperatorIdentifier]]:
    """Caller (None: the main graph) -> how often it calls which function or operator."""
    owners = {id(function.graph): name for name, function in model.functions.items()}
    calls: dict[ir.OperatorIdentifier | None, Counter[ir.OperatorIdentifier]] = {
        name: Counter() for name in (None, *model.functions)
    }
    for node, scope in scoped_nodes(model):
        while scope.outer is not None:
            scope = scope.outer
        caller = owners.get(id(getattr(scope.graph, "graph", scope.graph)))
        calls[caller][node.op_identifier()] += 1
    return calls
