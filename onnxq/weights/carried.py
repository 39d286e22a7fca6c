"""Factors per channel that a tensor carries: constants ahead make them, its readers undo them.

    T'[c] = f[c] T[c]       constants ahead times f       constants of all readers divided by f

What an operator makes of factors is its own knowledge (`Operator.scaled`, `Operator.undone`); here
they are followed from a tensor back to constants: through a Relu, a transposition, the attention
product whose values are columns. All numbers of the model's outputs stay, up to float rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import find_input, input_at, tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnxq.core.arrays import Reals
    from onnxq.graph.exchange import ConstantExchange


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """A constant input that is to be multiplied.

    Attributes:
        node: that reads it.
        slot: where.
        factor: float64, broadcasts with the constant; it may be of higher rank.
    """

    node: ir.Node
    slot: int
    factor: Reals


@dataclass(frozen=True, slots=True, eq=False)
class Carriers:
    """All that changes where a tensor is multiplied: constants, and tensors on the way.

    Attributes:
        constants: to be multiplied.
        tensors: that carry the factor then, the first of them the tensor itself.
    """

    constants: tuple[Scaled, ...]
    tensors: tuple[ir.Value, ...]


def carriers(value: ir.Value, factor: Reals, readers: Iterable[ir.Node]) -> Carriers | None:
    """Carriers that multiply `value` by the factor; None: it has no constants that could.

    Args:
        value: a tensor that nodes give.
        factor: above 0, of the tensor's rank, of size 1 along axes where it does not vary.
        readers: who reads the tensor as it is to become; another reader forbids it.
    """
    node = value.producer()
    if node is None or value.is_graph_output() or not _is_exact(value, factor):
        return None
    if any(use.node not in set(readers) for use in value.uses()):
        return None
    operator = catalog.find(node.op_type, node.domain)
    if operator is None or len({id(x) for x in node.inputs}) < len(node.inputs):
        return None
    for way in operator.scaled(node, factor):
        found = _through(node, way)
        if found is not None:
            return Carriers(found.constants, (value, *found.tensors))
    return None


def _through(node: ir.Node, way: Mapping[int, Reals]) -> Carriers | None:
    """Carriers of factors of a node's inputs."""
    constants: list[Scaled] = []
    tensors: list[ir.Value] = []
    for slot, factor in way.items():
        value = find_input(node, slot)
        if value is None:
            continue
        if constant(value) is not None:
            if not is_float_constant(value):
                return None
            constants.append(Scaled(node, slot, factor))
            continue
        found = carriers(value, factor, [node])
        if found is None:
            return None
        constants += found.constants
        tensors += found.tensors
    return Carriers(tuple(constants), tuple(tensors))


def undoing(
    value: ir.Value, factor: Reals, readers: Sequence[ir.Node]
) -> tuple[Scaled, ...] | None:
    """Constants of these readers that leave their results as they are where `value` is divided.

    Args:
        value: read as input 0, and nowhere else, by each of them.
        factor: of the value's rank.
        readers: nodes.

    Returns:
        One or more per reader; None: a reader has none.
    """
    found: list[Scaled] = []
    for node in readers:
        operator = catalog.find(node.op_type, node.domain)
        if operator is None or [slot for slot, x in enumerate(node.inputs) if x is value] != [0]:
            return None
        way = operator.undone(node, factor)
        if way is None or any(not is_float_constant(input_at(node, slot)) for slot in way):
            return None
        found += [Scaled(node, slot, each) for slot, each in way.items()]
    return tuple(found)


def multiply(scaled: Scaled, exchange: ConstantExchange) -> None:
    """Puts the product into the slot; others who read the constant keep theirs."""
    value = input_at(scaled.node, scaled.slot)
    tensor, factor = tensor_of(value), scaled.factor
    while factor.ndim > len(tensor.shape) and factor.shape[0] == 1:
        factor = factor[0]
    shape = np.broadcast_shapes(tensor.shape.numpy(), factor.shape)
    exchange.put(
        scaled.node,
        scaled.slot,
        derived(lambda: (tensor.numpy() * factor).astype(np.float32), ir.DataType.FLOAT, shape),
        f"{value.name}_scaled",
        (scaled.slot, factor.tobytes(), factor.shape),
    )


def is_float_constant(value: ir.Value) -> bool:
    """Whether it is a float32 constant."""
    tensor = constant(value)
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT


def _is_exact(value: ir.Value, factor: Reals) -> bool:
    """Whether the tensor has exactly the sizes along which the factor varies."""
    if value.shape is None or len(value.shape) != factor.ndim:
        return False
    return all(size == 1 or value.shape[axis] == size for axis, size in enumerate(factor.shape))
