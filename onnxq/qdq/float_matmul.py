"""Keeps MatMuls in float that ONNX Runtime 1.32 would compute with activations rounded to int8.

    DQ(uint16) -> MatMul(DQ(w, axis 1)) -> Q     becomes     DQ -> MatMul(DQ(w, axis -1)) -> Q

Since 1.32 it makes MatMulNBits, accuracy level 4, of a MatMul by a stored matrix between Q and DQ
of 16 bits, for which it has no kernel on integers (`Fact.packs_beside_16_bits`). It looks for one
scale, for axis 1, or for axis 0 with blocks. The same axis counted from behind means the same in
ONNX, and does not match; one scale for all becomes one per column. Earlier versions compute such a
file as before.
"""

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames
from onnxq.operator.readers import readers
from onnxq.ort import facts
from onnxq.qdq import read
from onnxq.qdq.write import constants_of
from onnxq.targets.speedups import LINEAR_OPS

VANISHING = ("Identity", "Dropout")
PASSED = (*VANISHING, "Relu", "Clip", "Add")
"""Nodes behind a MatMul that may become a part of it, or of the Q behind them."""
SIXTEEN_BITS = {ir.DataType.UINT16, ir.DataType.INT16}
MATRIX = 2  # rank of what becomes MatMulNBits
NEWEST = (1, 32)  # the first ONNX Runtime that packs there


def keep_float_matmul(model: ir.Model) -> None:
    """Counts the axis of such matrices from behind, in place."""
    names: FreeNames | None = None
    for node in model.graph.all_nodes():
        source = _stored_matrix(node)
        if source is None or not _is_between_16_bits(node):
            continue
        names = names or FreeNames(model)
        _count_from_behind(source, names)


def _stored_matrix(node: ir.Node) -> ir.Node | None:
    """The DQ of a MatMul's constant matrix that ONNX Runtime may pack; None: there is none."""
    if node.domain or node.op_type not in LINEAR_OPS:
        return None
    if not facts.of(node, NEWEST).packs_beside_16_bits or node.attributes.get_int("transB", 0) != 0:
        return None
    source = read.dequantizer(node.inputs[1])
    integers = None if source is None else source.inputs[0]
    rank = None if integers is None or integers.shape is None else len(integers.shape)
    return source if read.is_constant(source) and rank == MATRIX else None


def _is_between_16_bits(node: ir.Node) -> bool:
    """Whether the Q and DQ of its activations and results are of 16 bits, and there is one."""
    source = read.dequantizer(node.inputs[0])
    beside = [n for n in (source, *readers(node.outputs[0], PASSED)) if n is not None]
    types = {read.integer_type(n) for n in beside if read.is_dequantize(n) or read.is_quantize(n)}
    return bool(types) and types <= SIXTEEN_BITS


def _count_from_behind(source: ir.Node, names: FreeNames) -> None:
    scale, zero = read.array_of(source, read.SCALE), read.array_of(source, read.ZERO_POINT)
    integers = source.inputs[0]
    if scale is None or integers is None or integers.shape is None:
        return
    axis = source.attributes.get_int("axis", read.DEFAULT_AXIS)
    if scale.ndim == 0:
        columns, axis = integers.shape.numpy()[1], 1
        new = constants_of(source, names)
        source.replace_input_with(
            read.SCALE, new(f"{integers.name}_scales", np.full(columns, scale))
        )
        if zero is not None:
            zeros = np.full(columns, zero)
            source.replace_input_with(read.ZERO_POINT, new(f"{integers.name}_zero_points", zeros))
    source.attributes.add(ir.AttrInt64("axis", axis if axis < 0 else axis - MATRIX))
