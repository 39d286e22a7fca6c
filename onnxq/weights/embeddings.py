"""Embeddings, which Gather takes rows of, and linear layers whose weight is one of them.

    E = Gather(T, ids)        Y = X T'        integers of T's rows serve both

A tied head multiplies with the embedding, transposed or not, so that its outputs are its rows:
groups run along the same axis, and one set of integers is stored.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.core.reason import Reason
from onnxq.dynamic.lookup_tables import LOOKUP
from onnxq.dynamic.tied_weights import find_tied
from onnxq.graph.walk import node_name, value_name
from onnxq.operator.nodes import input_at, is_constant, shape, sizes
from onnxq.targets.speedups import LINEAR_OPS
from onnxq.weights.reasons import GroupsDoNotDivide, NoRowsOfFloats

MATRIX, STACK = 2, 3  # ranks
LOOKUP_ND = "GatherND"


@dataclass(frozen=True, slots=True)
class Tie:
    """A weight that is an embedding, or its transpose."""

    embedding: str
    lookup: str
    turned: bool = False


def is_lookup(node: ir.Node) -> bool:
    """Whether the node takes slices of a constant."""
    return node.op_type == LOOKUP and not node.domain and is_constant(node, 0)


def is_stack(node: ir.Node) -> bool:
    """Whether the node takes matrices of a constant stack in float, as of experts' weights."""
    if node.domain or not is_constant(node, 0) or str(input_at(node, 0).dtype) != "FLOAT":
        return False
    attributes, indices = node.attributes, shape(node, 1) or (None,)
    by_number = node.op_type == LOOKUP and attributes.get_int("axis", 0) in (0, -STACK)
    by_rows = node.op_type == LOOKUP_ND and indices[-1] == 1
    whole = by_number or (by_rows and not attributes.get_int("batch_dims", 0))
    return whole and len(sizes(node, 0)) == STACK


def why_no_rows(node: ir.Node, group_size: int) -> Reason | None:
    """Reason why a lookup's embedding cannot be in groups; None: it can."""
    value = input_at(node, 0)
    sizes = () if value.shape is None else value.shape.numpy()
    axis = node.attributes.get_int("axis", 0)
    if len(sizes) != MATRIX or axis % MATRIX or str(value.dtype) != "FLOAT":
        return NoRowsOfFloats()
    if sizes[1] % group_size:
        return GroupsDoNotDivide(group_size, sizes[1])
    return None


def find_ties(nodes: Sequence[ir.Node]) -> dict[str, Tie]:
    """Weight of linear layers -> the embedding that it is; embeddings of lookups are among them."""
    read: dict[ir.Value, str] = {}
    for node in nodes:
        if is_lookup(node):
            read.setdefault(input_at(node, 0), node_name(node))
    linear = [n for n in nodes if n.op_type in LINEAR_OPS and not n.domain]
    weights = [v for n in linear for v in n.inputs if v is not None and v.is_initializer()]
    found = {value_name(value): Tie(value_name(value), name) for value, name in read.items()}
    for value, twin in find_tied([*read, *weights]).items() if weights else ():
        for one, other in ((value, twin), (twin, value)):
            if other in read and one not in read:
                found[value_name(one)] = Tie(value_name(other), read[other], turned=True)
    return found


def notes_on_no_embeddings(embeddings: Collection[str]) -> list[str]:
    """One note where embeddings were asked for in groups, and no embedding is stored so."""
    if embeddings:
        return []
    return [
        "embedding_bits (--embedding-bits) has no effect: the model has no embedding (a Gather "
        "of rows of a float32 matrix) whose rows the groups divide"
    ]
