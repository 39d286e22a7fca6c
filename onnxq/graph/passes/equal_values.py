"""Values that are equal because the same is computed of the same: numbering of values."""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import onnx_ir as ir

_COPY, _TRANSPOSE = "Identity", "Transpose"
_RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")  # how names of operators begin
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_COMPARED_BYTES = 1024  # of a tensor among attributes; larger ones are equal to themselves alone


def equal_values(model: ir.Model) -> dict[ir.Value, ir.Value]:
    """Result of a node -> the first value of the main graph that is equal to it, maybe itself.

    Identity gives its input, as Transpose to the order that there is; several in a row are one.
    Nodes with bodies, and those that draw numbers, have results of their own.
    """
    first: dict[ir.Value, ir.Value] = {}
    numbered: dict[Hashable, ir.Value] = {}
    turned: dict[ir.Value, _Turned] = {}
    for node in model.graph:
        result, one = node.outputs[0], _turned(node, first, turned)
        if one is not None:
            is_as_it_was = list(one.order) == sorted(one.order)
            first[result] = one.source if is_as_it_was else numbered.setdefault(one, result)
            turned[result] = one
            continue
        key = _key(node, first)
        for position, value in enumerate(node.outputs):
            first[value] = value if key is None else numbered.setdefault((key, position), value)
        if node.op_type == _COPY and node.inputs[0] is not None:
            first[result] = first.get(node.inputs[0], node.inputs[0])
    return first


def is_random(node: ir.Node) -> bool:
    """Whether a node may draw numbers."""
    return node.op_type.startswith(_RANDOM)


class _Turned(NamedTuple):
    """A value with its axes in another order: axis i is order[i] of the source."""

    source: ir.Value
    order: tuple[int, ...]


def _turned(
    node: ir.Node, first: Mapping[ir.Value, ir.Value], turned: Mapping[ir.Value, _Turned]
) -> _Turned | None:
    """Value of a Transpose that says its order, through those ahead of it."""
    read = node.inputs[0] if node.inputs else None
    perm = node.attributes.get("perm")
    if node.op_type != _TRANSPOSE or read is None or perm is None or perm.is_ref():
        return None
    source, order = first.get(read, read), tuple(perm.as_ints())
    if source not in turned:
        return _Turned(source, order)
    before = turned[source]
    return _Turned(before.source, tuple(before.order[axis] for axis in order))


def _key(node: ir.Node, first: dict[ir.Value, ir.Value]) -> Hashable | None:
    """The computation of a node; None where it is equal to no other."""
    if is_random(node):
        return None
    attributes = [(name, _constant(node.attributes[name])) for name in sorted(node.attributes)]
    if any(value is None for _, value in attributes):
        return None
    read = tuple(None if x is None else first.get(x, x) for x in node.inputs)
    return node.domain, node.op_type, read, tuple(attributes)


def _constant(attribute: ir.Attr) -> Hashable | None:
    """The value of an attribute, by which it is compared; None: it is not."""
    if attribute.is_ref() or attribute.type in _GRAPHS:
        return None
    if attribute.type != ir.AttributeType.TENSOR:
        value = attribute.value
        return tuple(value) if isinstance(value, list | tuple) else (value,)
    tensor = attribute.as_tensor()
    if tensor.nbytes > _COMPARED_BYTES:
        return id(tensor)
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()
