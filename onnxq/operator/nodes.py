"""Presence, constants and shapes of a node's inputs: all that a rule may look at.

ONNX IR's types leave open what canonical graphs guarantee; here they do not.
"""

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.operator.call import NodeCall
from onnxq.operator.reasons import InfiniteOperand
from onnxq.operator.rule import Float

ONNX_DOMAINS = ("", "ai.onnx")
"""Both names of ONNX's own domain."""
STANDS_FOR_INFINITY = 1e6
"""Masks write infinity as -1e9, -3.4e38 or -inf: one scale cannot hold it and the data."""


def input_at(node: ir.Node, slot: int) -> ir.Value:
    """The value in an input slot that the node needs, so that it is connected."""
    value = node.inputs[slot]
    assert value is not None
    return value


def find_input(node: ir.Node, slot: int) -> ir.Value | None:
    """The value in an input slot; None where it is left out, or the node has no such slot."""
    return node.inputs[slot] if 0 <= slot < len(node.inputs) else None


def has_input(node: ir.Node, slot: int) -> bool:
    """Whether something is connected to the input slot."""
    return find_input(node, slot) is not None


def tensor_of(value: ir.Value) -> ir.TensorProtocol:
    """The tensor of a value that is a constant."""
    assert value.const_value is not None
    return value.const_value


def is_constant(node: ir.Node, slot: int) -> bool:
    """Whether the input is an initializer that no caller can override; reads no data."""
    value = find_input(node, slot)
    return value is not None and value.const_value is not None and not value.is_graph_input()


def constant(node: ir.Node, slot: int) -> Array | None:
    """The constant in an input slot; None where it is absent or computed at run time."""
    return tensor_of(input_at(node, slot)).numpy() if is_constant(node, slot) else None


def constant_operand(node: ir.Node) -> float | None:
    """The number that is all of a node's constant operand, of two; None: there is no such one."""
    for slot in (0, 1):
        found = constant(node, slot)
        if found is not None:
            is_one = found.size > 0 and bool(np.all(found == found.flat[0]))
            return float(found.flat[0]) if is_one else None
    return None


def call_of(node: ir.Node) -> NodeCall:
    """The node's attributes, without inputs, for what kernels and lowerings share."""
    attributes = {name: a.value for name, a in node.attributes.items()}
    return NodeCall(f"{node.op_type} '{node.name}'", (), attributes=attributes)


def shape(node: ir.Node, slot: int) -> tuple[int | None, ...] | None:
    """Sizes of an input, None for those not known; None where not even the rank is known."""
    value = find_input(node, slot)
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def sizes(node: ir.Node, slot: int) -> tuple[int, ...]:
    """Sizes of a constant input."""
    return tuple(tensor_of(input_at(node, slot)).shape.numpy())


def infinite(value: Array) -> bool:
    """Whether the constant holds numbers that stand for infinity."""
    if not value.size or not np.issubdtype(value.dtype, np.floating):
        return False
    # NaN fails both
    is_finite = value.min() > -STANDS_FOR_INFINITY and value.max() < STANDS_FOR_INFINITY
    return not bool(is_finite)


def infinite_operand(node: ir.Node, slots: Iterable[int]) -> Float | None:
    """Why a node stays float where a constant operand stands for infinity; else None."""
    for slot in slots:
        value = constant(node, slot)
        if value is not None and infinite(value):
            return Float(
                InfiniteOperand(
                    "a constant operand holds numbers that stand for infinity: "
                    "no scale can hold them beside the data"
                )
            )
    return None
