"""Codes of weights in a model: stored once for all nodes of a graph that read the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.graph.walk import value_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir

    from onnxq.weights.plan_weights import InBlocks


class StoredCodes:
    """Initializers of codes, scales and zero points, by graph and by what they are of."""

    def __init__(self) -> None:
        self._made: dict[tuple[ir.Graph, str], Sequence[ir.Value]] = {}

    def of(
        self, graph: ir.Graph, decision: InBlocks, make: Callable[[], Sequence[ir.Value]]
    ) -> Sequence[ir.Value]:
        """Initializers of the graph; those that are not there yet are made.

        Args:
            graph: of the node that reads them.
            decision: on the node; decisions of one `stored_as` share them.
            make: adds them to the graph.
        """
        key = (graph, decision.stored_as)
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def drop_if_unread(weight: ir.Value) -> None:
    """Removes a float weight that no node reads any more, and that is no output of its graph."""
    kept = weight.uses() or weight.is_graph_output() or not weight.is_initializer()
    if not kept and weight.graph is not None:
        weight.graph.initializers.pop(value_name(weight), None)
