"""Computations on constants alone stand in the main graph, not in bodies, and once.

    body: y = op(x, Mul(Cast(w_quantized), w_scale))
      =>  main graph: w' = Mul(Cast(w_quantized), w_scale);  body: y = op(x, w')

Bodies see the names around them. So a weight is dequantized once for all the steps of a Loop or
Scan, for all the bodies that read it, and for all the steps of a loop that is written out. ONNX
Runtime folds constants when it loads a model, in bodies too, but once per body; without its
optimizations, and in the reference, they are computed in every step. Branches of If are no
exception: folded constants are computed whether taken or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.qdq.read import is_dequantize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


class Outermost:
    """The start of the main graph, where computations on constants are put.

    Args:
        graph: the main graph.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[object, ...], ir.Node] = {}
        self._results: set[ir.Value] = set()
        self._last: ir.Node | None = None

    def constant_nodes(
        self, nodes: Sequence[ir.Node], results: Iterable[ir.Value]
    ) -> dict[ir.Node, None]:
        """Nodes that compute on constants alone, in order."""
        belong = {value.producer() for value in results}
        found: dict[ir.Node, None] = {}
        for node in nodes:
            values = [value for value in node.inputs if value is not None]
            known = all(v.producer() in found or self._is_constant(v) for v in values)
            # ONNX Runtime makes MatMulNBits of a DQ and a product in the same graph
            if known and node not in belong and not is_dequantize(node):
                found[node] = None
        return found

    def _is_constant(self, value: ir.Value) -> bool:
        constant = value.const_value is not None and not value.is_graph_input()
        return constant or value in self._results

    def take(self, node: ir.Node) -> ir.Node:
        """The node, inserted behind those taken before, or the equal one that is there already."""
        attributes = tuple(sorted((name, str(a.value)) for name, a in node.attributes.items()))
        key = (node.domain, node.op_type, tuple(node.inputs), attributes)
        first = self._made.setdefault(key, node)
        if first is not node:
            for mine, other in zip(node.outputs, first.outputs, strict=True):
                mine.replace_all_uses_with(other)
            node.resize_inputs(0)  # it reads nothing any more
            return first
        if self._last is not None:
            self._graph.insert_after(self._last, node)
        else:
            self._graph.insert_before(self._graph[0], node)
        self._last = node
        self._results.update(node.outputs)
        return node
