"""What the nodes of a quantized graph say, and small edits of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnxq.dtypes import all_qdtypes
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    import numpy.typing as npt


QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
WEIGHT, BIAS = 1, 2
"""Slots of Conv, ConvTranspose and Gemm."""
_STORED = {t.onnx: t for t in all_qdtypes() if t.is_integer}


def dequantizer(value: ir.Value | None) -> ir.Node | None:
    """The DequantizeLinear that makes the value, if one does."""
    producer = None if value is None else value.producer()
    return producer if producer is not None and producer.op_type == DEQUANTIZE else None


def is_constant(dequantizer: ir.Node | None) -> bool:
    """Whether its codes are an initializer."""
    return (
        dequantizer is not None
        and dequantizer.inputs[0] is not None
        and dequantizer.inputs[0].is_initializer()
    )


def scale_rank(node: ir.Node) -> int | None:
    """Rank of the scale of a Q or DQ; None: it is not constant."""
    scale = array_of(node, 1)
    return None if scale is None else scale.ndim


def array_of(node: ir.Node, slot: int) -> npt.NDArray[Any] | None:
    """The constant in that slot; None: there is none."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return None if value is None or value.const_value is None else value.const_value.numpy()


def qparams_of(node: ir.Node) -> QParams | None:
    """Of a Q or DQ with constants; None otherwise."""
    scale, zero_point = array_of(node, 1), array_of(node, 2)
    if scale is None or zero_point is None:
        return None
    dtype = _STORED[ir.DataType.from_numpy(zero_point.dtype).name]
    axis = node.attributes.get_int("axis", 1)
    return QParams(scale, zero_point, dtype, PerChannel(axis) if scale.ndim else PerTensor())
