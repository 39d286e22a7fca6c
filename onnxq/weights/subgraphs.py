"""Segments of a model, from one layer to the next, as models of their own.

    nodes before layer 1 | layer 1, what is folded into it, nodes up to layer 2 | layer 2 ...

Run one after the other, batch by batch, they compute what the model computes, and each node runs
once: a layer can be changed when everything ahead of it is final, at the price of one run in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.walk import bodies, node_name, value_name, walk
from onnxq.ort.matmul_add import matmul_add
from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from onnxq.static.plan import Plan


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Nodes of the main graph that run together.

    Attributes:
        layer: name of the first one, where it is a layer; empty: it is none.
        reads: tensors of earlier subgraphs, and inputs of the model.
        gives: tensors that later subgraphs read, and outputs of the model.
    """

    nodes: tuple[str, ...]
    layer: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]


def subgraphs_of(
    nodes: Iterable[ir.Node], outputs: Iterable[str], layers: Collection[str]
) -> list[Subgraph]:
    """The subgraphs of a model, in order."""
    parts: list[list[ir.Node]] = [[]]
    for node in nodes:
        if node_name(node) in layers:
            parts.append([])
        parts[-1].append(node)
    reads = [_read(part) for part in parts]
    wanted = set(outputs)
    found: list[Subgraph] = []
    for part, read in zip(reversed(parts), reversed(reads), strict=True):
        made = [value_name(v) for node in part for v in node.outputs if v.name]
        names = [node_name(node) for node in part]
        layer = names[0] if names and names[0] in layers else ""
        gives = tuple(name for name in made if name in wanted)
        outside = tuple(name for name in read if name not in set(made))
        found.append(Subgraph(tuple(names), layer, outside, gives))
        wanted |= set(outside)
    return [subgraph for subgraph in reversed(found) if subgraph.nodes]


def cut(
    source: ir.Model, nodes: Mapping[str, ir.Node], subgraph: Subgraph, outputs: Sequence[str]
) -> ir.Model:
    """The subgraph as a model that shares the weights of its source."""
    part = [nodes[name] for name in subgraph.nodes]
    values = list(_values(part))
    made = {value_name(v): v for node in part for v in node.outputs if v.name}
    view = ir.GraphView(
        [v for v in values if not v.is_initializer() and v.name in subgraph.reads],
        [made[name] for name in outputs],
        nodes=part,
        initializers=[v for v in values if v.is_initializer()],
        opset_imports=source.graph.opset_imports,
        name=source.graph.name,
    )
    return ir.Model(view.clone(), ir_version=source.ir_version)


def with_folded_behind(model: ir.Model, plan: Plan) -> Iterator[ir.Node]:
    """Nodes of the main graph, each followed by those that run as a part of it.

    These read its results and constants alone, so that they can run as early as that.
    """
    hosts: dict[str, list[ir.Node]] = {}
    folded: set[ir.Node] = set()
    for node in model.graph:
        decision = plan.decisions[node_name(node)]
        if isinstance(decision, Quantize) and decision.folded_into:
            hosts.setdefault(decision.folded_into, []).append(node)
            folded.add(node)
        product = matmul_add(node)
        if product is not None and product.bias.is_initializer() and product.add not in folded:
            added = plan.decisions[node_name(product.add)]
            if not (isinstance(added, Quantize) and added.folded_into):
                hosts.setdefault(node_name(node), []).append(product.add)
                folded.add(product.add)
    for node in model.graph:
        if node not in folded:
            yield node
            yield from hosts.get(node_name(node), ())


def _values(nodes: Sequence[ir.Node]) -> Iterator[ir.Value]:
    """Values of the main graph that the nodes read, in their bodies too; each once."""
    home = nodes[0].graph if nodes else None
    found: dict[ir.Value, None] = {}
    for node in nodes:
        every = [node, *(inner for body in bodies(node) for inner, _ in walk(body))]
        read = [v for each in every for v in each.inputs]
        read += [v for each in every for body in bodies(each) for v in body.outputs]
        found |= {v: None for v in read if v is not None and v.graph is home}
    yield from found


def _read(nodes: Sequence[ir.Node]) -> list[str]:
    return [value_name(v) for v in _values(nodes) if not v.is_initializer()]
