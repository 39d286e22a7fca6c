"""Local edits that the writer makes: where a node stands, what stands around it, its axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    from collections.abc import Iterable


def insert_behind(value: ir.Value, node: ir.Node, graph: ir.Graph) -> None:
    """Inserts the node right behind the value's producer, or first where that is elsewhere."""
    producer = value.producer()
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, node)
    elif len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


def graph_of(node: ir.Node) -> ir.Graph:
    """The graph that holds the node."""
    assert isinstance(node.graph, ir.Graph)
    return node.graph


def graphs_of(model: ir.Model, nodes: Iterable[ir.Node]) -> list[ir.Graph]:
    """The main graph, then each other graph that holds one of the nodes."""
    return [model.graph, *dict.fromkeys(graph_of(n) for n in nodes if n.graph is not model.graph)]


def from_dequantize(value: ir.Value) -> bool:
    """Whether a DequantizeLinear makes the value."""
    producer = value.producer()
    return producer is not None and producer.op_type == "DequantizeLinear"


def granularity_attributes(qparams: QParams) -> dict[str, int]:
    """Attributes axis and block_size of a (De)QuantizeLinear with these qparams."""
    match qparams.granularity:
        case PerTensor():
            return {}
        case PerChannel(axis):
            return {"axis": axis}
        case block:
            return {"axis": block.axis, "block_size": block.size}
