"""Integers that weights are stored as, in files of any form, to tell which a result has kept."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.dtypes import BYTE_BITS
from onnxq.graph.io import load
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.qdq.imported import read_imported
from onnxq.qdq.read import is_quantize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Integers = npt.NDArray[np.int16]

WEIGHT_AND_ZERO = {
    "Cast": (0, 1),  # of integers ahead of a Mul by their scale
    "DequantizeLinear": (0, 2),
    "Gather": (0, 2),  # of integers that are dequantized behind it
    "ConvInteger": (1, 3),
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QGemm": (3, 5),
    "QLinearConv": (3, 5),
    "QLinearMatMul": (3, 5),
}
"""Operator -> slots of its weight and of the weight's zero point."""
NBITS = "MatMulNBits"


def kept(given: Path, made: ir.Model) -> tuple[int, int]:
    """(weights of the result whose integers are those of the given file, weights in the file)."""
    before, after = (Counter(_prints(model)) for model in (_read(given), made))
    return sum((before & after).values()), sum(before.values())


def _read(path: Path) -> ir.Model:
    """The file, with float weights ahead of Q and DQ stored as the integers that they become."""
    model = load(path)
    if any(map(is_quantize, model.graph.all_nodes())):
        return read_imported(model)
    LiftConstants()(model)
    return model


def _prints(model: ir.Model) -> Iterator[bytes]:
    """The integers of each weight less their zero points, sorted: layouts may differ."""
    seen = set()
    for node in model.graph.all_nodes():
        found = _nbits(node) if node.op_type == NBITS else _stored(node)
        if found is not None and found.ndim > 1 and node.inputs[_slot(node)] not in seen:
            seen.add(node.inputs[_slot(node)])
            yield np.sort(found, axis=None).tobytes()


def _slot(node: ir.Node) -> int:
    return 1 if node.op_type == NBITS else WEIGHT_AND_ZERO[node.op_type][0]


def _array(node: ir.Node, slot: int) -> Integers | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    tensor = None if value is None else value.const_value
    if tensor is None or not tensor.dtype.is_integer() or tensor.dtype.bitwidth > BYTE_BITS:
        return None
    return np.asarray(tensor.numpy()).astype(np.int16)


def _stored(node: ir.Node) -> Integers | None:
    """A constant weight of at most 8 bits less its zero point."""
    slots = WEIGHT_AND_ZERO.get(node.op_type)
    if slots is None:
        return None
    weight, zero = (_array(node, slot) for slot in slots)
    if node.op_type == "Cast" and weight is not None:
        return weight - _subtracted(node)
    if weight is None or zero is None or zero.size == 1:
        return weight if zero is None or weight is None else weight - zero.reshape(())
    axis = node.attributes.get_int("axis", 1) if node.op_type == "DequantizeLinear" else -1
    if zero.ndim == weight.ndim:  # a zero point per block of the axis
        block = -(-weight.shape[axis] // zero.shape[axis])
        return weight - zero.repeat(block, axis).take(range(weight.shape[axis]), axis)
    axis = next(a for a in (axis, 0) if weight.shape[a] == zero.size)  # 0: of Conv, or transB
    wide = [1] * weight.ndim
    wide[axis] = zero.size
    return weight - zero.reshape(wide)


def _subtracted(cast: ir.Node) -> Integers:
    """The whole numbers that a Sub takes off the integers; 0 without one."""
    for use in cast.outputs[0].uses():
        zero = use.node.inputs[1] if use.node.op_type == "Sub" else None
        if zero is not None and zero.const_value is not None:
            return np.asarray(np.rint(zero.const_value.numpy()), np.int16)
    return np.zeros((), np.int16)


def _nbits(node: ir.Node) -> Integers | None:
    """The weight of a MatMulNBits less its zero points, (N, K)."""
    k, n, bits = (int(node.attributes[name].value) for name in ("K", "N", "bits"))
    packed, zeros = _array(node, 1), _array(node, 3)
    if packed is None:
        return None
    numbers = _unpacked(packed.reshape(n, -1), bits)
    block = int(node.attributes["block_size"].value)
    blocks = -(-k // block)
    middle = np.full((n, blocks), 1 << (bits - 1), np.int16)
    points = middle if zeros is None else _unpacked(zeros.reshape(n, -1), bits)[:, :blocks]
    return (numbers - points.repeat(block, 1))[:, :k]


def _unpacked(packed: Integers, bits: int) -> Integers:
    """Numbers of so many bits out of bytes, lowest first."""
    shifts = np.arange(0, 8, bits, dtype=np.int16)
    return ((packed[:, :, None] >> shifts) & ((1 << bits) - 1)).reshape(len(packed), -1)
