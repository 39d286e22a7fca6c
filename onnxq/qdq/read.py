"""QuantizeLinear and DequantizeLinear (Q, DQ), read: which nodes they are, and their qparams.

    zero point      absent: 0
    scale           one number, of shape () or (1,): per tensor, whatever the axis says
                    a vector: per channel of `axis`, 1 by default
                    with block_size: per block along `axis`
    type of integers   Q: the zero point's, else output_dtype, else uint8; DQ: that of its integers
    domain          "", "ai.onnx" or com.microsoft; the arithmetic is the same

ONNX Runtime reads them so (tests/qdq/test_read.py asks it).
"""

from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import dtypes
from onnxq.errors import ShapeError
from onnxq.operator.nodes import find_input
from onnxq.ort import facts
from onnxq.ort.facts import DOMAINS
from onnxq.qparams import FloatArray, Granularity, PerBlock, PerChannel, PerTensor, QParams

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
SCALE, ZERO_POINT = 1, 2
"""Slots of Q and DQ."""
WEIGHT, BIAS = 1, 2
"""Slots of Conv, ConvTranspose and Gemm."""
DEFAULT_AXIS = 1
# reversed: a registered type may be stored as int8, but int8 integers are int8
STORED = {t.onnx: t for t in reversed(dtypes.all_qdtypes()) if t.is_integer}
"""ONNX's name of a type of integers -> the type."""
SCALE_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
"""Types of scales that float32 holds exactly."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a Q or DQ has no qparams before the model runs."""

    reason: str


def is_quantize(node: ir.Node | None) -> TypeGuard[ir.Node]:
    """Whether it is a QuantizeLinear."""
    return node is not None and node.op_type == QUANTIZE and node.domain in DOMAINS


def is_dequantize(node: ir.Node | None) -> TypeGuard[ir.Node]:
    """Whether it is a DequantizeLinear."""
    return node is not None and node.op_type == DEQUANTIZE and node.domain in DOMAINS


def is_between_quantizers(node: ir.Node) -> bool:
    """Whether a node is between DQ and Q, or behind the DQs of an activation and a weight."""
    ahead = [p for p in node.predecessors() if is_dequantize(p)]
    behind = [*node.successors()]
    behind += [s for n in behind if facts.of(n).swallowed for s in n.successors()]
    is_rounded = any(map(is_constant, ahead)) or any(map(is_quantize, behind))
    return is_rounded and any(not is_constant(p) for p in ahead)


def dequantizer(value: ir.Value | None) -> ir.Node | None:
    """The DequantizeLinear that makes the value, if one does."""
    producer = None if value is None else value.producer()
    return producer if is_dequantize(producer) else None


def from_dequantize(value: ir.Value, reader: ir.Node) -> bool:
    """Whether a DQ of the reader's own graph makes it: fusion does not cross graphs."""
    source = dequantizer(value)
    return source is not None and source.graph is reader.graph


def is_constant(dequantizer: ir.Node | None) -> bool:
    """Whether its integers are an initializer."""
    integers = None if dequantizer is None else dequantizer.inputs[0]
    return integers is not None and integers.is_initializer()


def zero_point_of(node: ir.Node) -> ir.Value | None:
    """The zero point of a Q or DQ; None: it is absent, and 0."""
    return find_input(node, ZERO_POINT)


def array_of(node: ir.Node, slot: int) -> npt.NDArray[Any] | None:
    """The constant in that slot, that nobody can override; None: there is none."""
    tensor = _tensor(find_input(node, slot))
    return None if tensor is None else tensor.numpy()


def integer_type(node: ir.Node) -> ir.DataType | None:
    """Type of the integers of a Q or DQ; None: that of a DQ whose inputs have no types."""
    of_zero_point = _type_of(zero_point_of(node))
    if of_zero_point is not None:
        return of_zero_point
    if node.op_type == DEQUANTIZE:
        integers = node.inputs[0]
        source = None if integers is None else integers.producer()
        return _type_of(integers) or (integer_type(source) if is_quantize(source) else None)
    named = node.attributes.get_int("output_dtype", 0)
    return ir.DataType(named) if named else ir.DataType.UINT8


def qparams_of(node: ir.Node) -> QParams | Unread:
    """QParams of a Q or DQ whose scale and zero point are constants.

    A float16 scale is widened: integers are those of the node; real values are rounded to float16
    behind its DQ.
    """
    axis = node.attributes.get_int("axis", DEFAULT_AXIS)
    size = node.attributes.get_int("block_size", 0)
    return qparams_from(node.inputs[SCALE], zero_point_of(node), integer_type(node), axis, size)


def qparams_from(
    scale: ir.Value | None,
    zero_point: ir.Value | None,
    integers: ir.DataType | None,
    axis: int = DEFAULT_AXIS,
    block_size: int = 0,
) -> QParams | Unread:
    """QParams of a scale and a zero point that stand in a graph."""
    scale_tensor, zero_tensor = _tensor(scale), _tensor(zero_point)
    if scale_tensor is None or (zero_point is not None and zero_tensor is None):
        return Unread("its scale or zero point is computed at run time")
    if scale_tensor.dtype not in SCALE_TYPES:
        return Unread(f"its scale is {scale_tensor.dtype.name.lower()}")
    dtype = None if integers is None else STORED.get(integers.name)
    if dtype is None:
        kind = "of no known type" if integers is None else integers.name.lower()
        return Unread(f"its integers are {kind}")
    numbers = scale_tensor.numpy().astype(np.float32)
    zeros = np.zeros(numbers.shape, np.int64) if zero_tensor is None else zero_tensor.numpy()
    if zeros.size != numbers.size:
        return Unread(f"it has {numbers.size} scales and {zeros.size} zero points")
    if numbers.size == 1 and numbers.ndim <= 1 and not block_size:
        numbers = numbers.reshape(())
    try:
        granularity = _granularity(numbers, axis, block_size)
        zeros = zeros.reshape(numbers.shape).astype(dtype.storage)
        return QParams(numbers, zeros, dtype, granularity)
    except ShapeError as error:  # 0 or infinite, or of a rank that says nothing
        return Unread(str(error).rstrip("."))


def _granularity(scale: FloatArray, axis: int, block_size: int) -> Granularity:
    if block_size:
        return PerBlock(axis, block_size)
    return PerChannel(axis) if scale.ndim else PerTensor()


def one_scale(node: ir.Node | None) -> QParams | None:
    """QParams of a Q or DQ that has one constant scale for the tensor; None: of other nodes."""
    found = None if node is None else qparams_of(node)
    return found if isinstance(found, QParams) and found.granularity == PerTensor() else None


def is_float(value: ir.Value) -> bool:
    """Whether a value holds floats, as one of an unknown type counts."""
    return value.dtype is None or value.dtype.is_floating_point()


def _tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    if value is None or value.is_graph_input():  # a caller may give another
        return None
    return ir.convenience.get_const_tensor(value)


def _type_of(value: ir.Value | None) -> ir.DataType | None:
    if value is None or value.dtype is not None:
        return None if value is None else value.dtype
    tensor = _tensor(value)
    return None if tensor is None else tensor.dtype
