"""The graph of a float model as a page shows it: nodes of bodies beside those that hold them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.graph.walk import bodies, node_name, value_name, walk
from onnxq.operator import Precision
from onnxq.page.content import NodePart
from onnxq.page.drawing import ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir

    from onnxq.page.content import Edge
    from onnxq.survey.file_forms import ShownForm

INPUT, OUTPUT = "input", "output"
"""Operators of ends, in words."""
INSIDE = "inside"
"""Form of a node that another one carries out."""


@dataclass(frozen=True)
class SurveyedGraph:
    """A float model's graph.

    Attributes:
        nodes: inputs, nodes in the order in which they run, outputs.
        edges: between their places.
        places: name of a node -> its place.
        makers: name of a tensor -> place of the node or input that gives it.
    """

    nodes: tuple[NodePart, ...]
    edges: tuple[Edge, ...]
    places: Mapping[str, int]
    makers: Mapping[str, int]


def surveyed_graph(
    source: ir.Model,
    choices: Mapping[str, ShownForm],
    times: Mapping[str, tuple[float, float]],
) -> SurveyedGraph:
    """The graph with the form and the times of every node.

    Args:
        source: the float model, canonical.
        choices: of every node.
        times: microseconds in float and quantized; empty: not measured.
    """
    inputs = [v for v in source.graph.inputs if not v.is_initializer()]
    nodes = [node for node, _ in walk(source.graph)]
    parts = [NodePart(value_name(v), INPUT, ENDS, "") for v in inputs]
    parts += [_part(node, choices[node_name(node)], times.get(node_name(node))) for node in nodes]
    places = {node_name(node): len(inputs) + place for place, node in enumerate(nodes)}
    makers = {value_name(v): place for place, v in enumerate(inputs)}
    makers |= {v.name: places[node_name(n)] for n in nodes for v in n.outputs if v.name}
    edges = [edge for node in nodes for edge in _edges(node, places, makers)]
    for output in source.graph.outputs:
        name = value_name(output)
        if name in makers:
            edges.append((makers[name], len(parts)))
        parts.append(NodePart(name, OUTPUT, ENDS, ""))
    return SurveyedGraph(tuple(parts), tuple(dict.fromkeys(edges)), places, makers)


def _part(node: ir.Node, choice: ShownForm, times: tuple[float, float] | None) -> NodePart:
    form = INSIDE if choice.precision is None else choice.precision.value
    name = node_name(node)
    # every command that quantizes has this option
    revert = "" if choice.precision in (Precision.FLOAT, None) else f"--exclude {shlex.quote(name)}"
    op_type = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    before, after = times or (None, None)
    return NodePart(name, op_type, form, choice.reason, before, after, revert=revert)


def _edges(node: ir.Node, places: Mapping[str, int], makers: Mapping[str, int]) -> Iterator[Edge]:
    """From what a node reads; and from the last nodes of its bodies, which give its results."""
    place = places[node_name(node)]
    for value in node.inputs:
        if value is not None and (maker := makers.get(value.name or "")) is not None:
            yield maker, place
    for body in bodies(node):
        for output in body.outputs:
            if (maker := makers.get(output.name or "")) is not None:
                yield maker, place
