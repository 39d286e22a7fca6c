"""One node in the place of several that spell out what it computes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant, replace
from onnxq.graph.passes.opset import raise_opset
from onnxq.graph.weights import constant


@dataclass(frozen=True, slots=True)
class FusedNode:
    """A node that computes what several compute."""

    nodes: Sequence[ir.Node]
    op_type: str
    inputs: Sequence[ir.Value | Array]
    attributes: Mapping[str, float | int | str]
    domain: str = ""


def inner_nodes(node: ir.Node, leaves: Collection[ir.Value]) -> list[ir.Node] | None:
    """The nodes that compute this one's result of the leaves and of constants, itself the first.

    None where somebody else reads what one of them computes, or computes it in another graph: then
    they cannot go.
    """
    found = {node: None}
    ahead = [node]
    while ahead:
        for x in ahead.pop().inputs:
            if x is None or x in leaves or constant(x) is not None:
                continue
            producer = x.producer()
            if producer is None or producer.graph is not node.graph:
                return None
            if producer not in found:
                found[producer] = None
                ahead.append(producer)
    between = [y for inner in found if inner is not node for y in inner.outputs]
    if any(y.is_graph_output() or any(u.node not in found for u in y.uses()) for y in between):
        return None
    return list(found)


def fuse_all(model: ir.Model, match: Callable[[ir.Node], FusedNode | None], opset: int) -> bool:
    """Makes one node of each match, in all graphs; whether there was one.

    The new node has the name, the metadata and the result of the last node that it stands for.

    Args:
        model: whose types are known.
        match: what a node is part of, in such a way that it is asked of each node.
        opset: that the new nodes need. A model that cannot be raised to it stays as it is.
    """
    if not any(match(node) is not None for node in all_nodes(model)):
        return False
    if not raise_opset(model, opset):
        return False
    names = FreeNames(model)
    for node in list(all_nodes(model)):
        fusion = match(node) if node.graph is not None else None
        if fusion is not None:
            _fuse(model, fusion, names)
    return True


def _fuse(model: ir.Model, fusion: FusedNode, names: FreeNames) -> None:
    last, *inner = fusion.nodes
    stem = last.outputs[0].name
    inputs = [
        x if isinstance(x, ir.Value) else new_constant(last, names.value(f"{stem}_input{slot}"), x)
        for slot, x in enumerate(fusion.inputs)
    ]
    made = ir.node(
        fusion.op_type, inputs, dict(fusion.attributes), domain=fusion.domain, name=last.name
    )
    made.metadata_props.update(last.metadata_props)
    if fusion.domain:
        model.opset_imports.setdefault(fusion.domain, 1)
    replace(last, made, names)
    graph_of(made).remove(inner, safe=True)
