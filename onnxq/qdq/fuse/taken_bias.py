"""The bias of a node on integers: int32 already, or a float vector that ONNX Runtime quantizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import INT32
from onnxq.graph.weights import constant
from onnxq.qdq.read import Unread, from_dequantize, integer_type

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.qdq.fuse.fusion import Fusion
    from onnxq.qdq.fuse.scales import Scales

BIAS_SCALE_TOLERANCE = 0.01  # ONNX Runtime takes a bias whose scale is that near x_scale * w_scale
UNCHECKED = frozenset({"Gemm"})
"""Operators whose int32 bias it takes for one of x_scale * w_scale, whatever its own scale says."""


def take_bias(made: Fusion, scales: Scales) -> str:
    """Puts int32 integers of a bias in place; the reason where that cannot be done."""
    slot = made.rule.bias
    value = None if slot is None or slot >= len(made.inputs) else made.inputs[slot]
    if slot is None or value is None:
        return ""
    weight = made.rule.weight
    x = made.plan.inputs[made.rule.activations[0]]
    w = None if weight is None else made.plan.inputs[weight.slot]
    assert x is not None, "activations have qparams"
    assert w is not None, "a rule with a bias has a weight"
    with np.errstate(under="ignore"):
        wanted = np.asarray(x.scale * w.scale)
    producer = value.producer()
    if producer is not None and from_dequantize(value, made.node):
        return _take_integer_bias(made, slot, producer, wanted, scales)
    tensor = constant(value)
    if tensor is None or tensor.dtype.name != "FLOAT" or len(tensor.shape) != 1:
        return "its bias is float, and no constant vector"
    if wanted.ndim and wanted.shape != tuple(tensor.shape):
        return "its bias is float, and its weight has another number of scales"
    if not made.quantizers:
        return "its bias is float and its result not quantized: ONNX Runtime leaves it in float32"
    with np.errstate(all="ignore"):
        integers = np.rint(np.asarray(tensor.numpy() / wanted, np.float32))
    if not np.all(np.abs(integers) < 2**31):
        return "its bias does not fit into int32"
    made.new_bias = slot, integers.astype(np.int32)
    return ""


def _take_integer_bias(
    made: Fusion, slot: int, dequantize: ir.Node, wanted: Singles, scales: Scales
) -> str:
    """Puts the integers of a DequantizeLinear in place; the reason where that cannot be done."""
    if made.operator.op_type in UNCHECKED:
        if integer_type(dequantize) is not ir.DataType.INT32:
            return "its bias is not int32"
        made.inputs[slot] = dequantize.inputs[0]
        return ""
    qparams = scales.of(dequantize)
    if isinstance(qparams, Unread) or qparams.dtype != INT32 or qparams.zero_point.any():
        return "its bias is not int32 with constant scales and zero point 0"
    if not np.allclose(qparams.scale, wanted, rtol=BIAS_SCALE_TOLERANCE, atol=0):
        return "the scale of its bias is not the product of the scales of input and weight"
    made.inputs[slot] = dequantize.inputs[0]
    return ""
