"""Weights of imported files whose pairs of products may saturate: int8 becomes uint8 around 128.

The same numbers, of which ONNX Runtime adds the products exactly on every x86.
"""

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.graph.edit import FreeNames, new_constant
from onnxq.graph.passes.unused import RemoveUnused
from onnxq.operator.nodes import find_input, input_at
from onnxq.qdq import read
from onnxq.qdq.write import shifted_constant
from onnxq.targets import Target

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
MULTIPLYING = ("Conv", "Gemm", "MatMul")
"""Op types that multiply an activation by a weight."""


def widen_weights(model: ir.Model, target: Target) -> int:
    """Makes int8 weights uint8 whose products may saturate on the target; how many became it."""
    if not target.reduces_range:
        return 0
    names = FreeNames(model)
    found = [n for n in model.graph if n.op_type in MULTIPLYING and multiplies_integers(n)]
    large = [node for node in found if _is_large(node, target)]
    for node in large:
        _shift_weight(node, names)
    lowered = [node for node in model.graph if node.op_type == "QLinearConv"]
    shifted = [node for node in lowered if _shift_lowered(node, names, target)]
    RemoveUnused()(model)
    return len(large) + len(shifted)


def _shift_lowered(node: ir.Node, names: FreeNames, target: Target) -> bool:
    """Shifts the large int8 weight of a QLinearConv, as ConvTranspose becomes; whether it did."""
    if not _is_beyond(read.array_of(node, 3), target):
        return False
    for slot in (3, 5):
        node.replace_input_with(slot, shifted_constant(input_at(node, slot), names))
    return True


def multiplies_integers(node: ir.Node) -> bool:
    """Whether it multiplies 8 bits of an activation by those of a constant."""
    x, weight = (read.dequantizer(value) for value in node.inputs[:2])
    if x is None or weight is None or read.is_constant(x) or not read.is_constant(weight):
        return False
    both = (read.integer_type(x), read.integer_type(weight))
    return read.one_scale(x) is not None and both[0] == ir.DataType.UINT8 and both[1] in BYTES


def _is_large(node: ir.Node, target: Target) -> bool:
    """Whether a pair of products may leave int16."""
    weight = read.dequantizer(node.inputs[1])
    return weight is not None and _is_beyond(read.array_of(weight, 0), target)


def _is_beyond(integers: Array | None, target: Target) -> bool:
    """Whether int8 integers are larger than those whose pairs of products fit int16."""
    if integers is None or integers.dtype != np.int8:
        return False
    return bool(np.abs(integers.astype(np.int16)).max(initial=0) > target.weight_qmax_saturating)


def _shift_weight(node: ir.Node, names: FreeNames) -> None:
    weight = read.dequantizer(node.inputs[1])
    assert weight is not None, "multiplies_integers looked"
    if read.integer_type(weight) != ir.DataType.INT8:  # another reader was here
        return
    if find_input(weight, read.ZERO_POINT) is None:
        scale = read.array_of(weight, read.SCALE)
        zeros = np.zeros(() if scale is None else scale.shape, np.int8)
        weight.resize_inputs(read.ZERO_POINT + 1)
        name = names.value(f"{weight.outputs[0].name}_zero_point")
        weight.replace_input_with(read.ZERO_POINT, new_constant(weight, name, zeros))
    for slot in (0, read.ZERO_POINT):
        weight.replace_input_with(slot, shifted_constant(input_at(weight, slot), names))
