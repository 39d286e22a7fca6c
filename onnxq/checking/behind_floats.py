"""Integers behind nodes that round floats, which may depend on the machine.

A node that rounds may give other last bits on another machine (onnxq.ort.node_kinds). Integers
computed from these can be one LSB apart, and then whatever is computed from the integers.
Everything else is the same integers, or the same floats, wherever products of integers are added
alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.ort import node_kinds as kernels

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class BehindFloats:
    """Nodes of one model that round floats, and what is computed from them.

    Attributes:
        floats: op type -> nodes that round floats, the most frequent first.
        integers: names of the nodes behind them that make integers or compute with them, in graph
            order.
        outputs: names of the model's outputs behind them.
    """

    floats: Mapping[str, int]
    integers: tuple[str, ...]
    outputs: tuple[str, ...]


def behind_floats(integer: ir.Model, feedback: Mapping[str, str] | None = None) -> BehindFloats:
    """Finds what rounds floats and what is computed from that, in bodies of If, Loop, Scan too.

    A body counts as a whole: where anything in it rounds, or reads what was rounded, all of it is
    behind floats.

    Args:
        integer: a model on integers (onnxq.reference.integer_form).
        feedback: {output name: input name} of state.
    """
    uses = dict(zip(integer.graph.all_nodes(), kernels.integer_nodes(integer), strict=True))
    counts: dict[str, int] = {}
    for use in uses.values():
        if use.rounds:
            counts[use.op_type] = counts.get(use.op_type, 0) + 1
    fed: set[ir.Value] = set()
    inputs = {str(value.name): value for value in integer.graph.inputs}
    while True:  # once more for each output that goes round as an input
        behind, touched = _sweep(integer.graph, uses, fed)
        outputs = tuple(str(v.name) for v in integer.graph.outputs if v in touched)
        back = {inputs[i] for o, i in (feedback or {}).items() if o in outputs and i in inputs}
        if back <= touched:
            break
        fed |= back
    floats = dict(sorted(counts.items(), key=lambda item: -item[1]))
    return BehindFloats(floats, tuple(_name(node) for node in behind), outputs)


def _sweep(
    graph: ir.Graph, uses: Mapping[ir.Node, kernels.NodeUse], fed: Collection[ir.Value]
) -> tuple[list[ir.Node], set[ir.Value]]:
    """Nodes with integers behind floats, and the values that are, `fed` among them."""
    behind, touched = [], set(fed)
    for node in graph:
        inside = list(_inside(node))
        nodes = [node, *inside]
        reads = any(value in touched for n in nodes for value in n.inputs)
        if not reads and not any(uses[n].rounds for n in nodes):
            continue
        touched.update(value for n in nodes for value in n.outputs)
        if reads or inside:
            behind += [n for n in nodes if uses[n].has_integers]
    return behind, touched


def _inside(node: ir.Node) -> Iterator[ir.Node]:
    """Every node of its bodies."""
    for attribute in node.attributes.values():
        if attribute.type.name == "GRAPH":
            yield from attribute.as_graph().all_nodes()
        elif attribute.type.name == "GRAPHS":
            for graph in attribute.as_graphs():
                yield from graph.all_nodes()


def _name(node: ir.Node) -> str:
    return node.name or str(node.outputs[0].name)
