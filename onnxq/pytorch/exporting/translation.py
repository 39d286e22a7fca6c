"""ONNX nodes of the operators in onnxq.pytorch.numerics: a table for torch.onnx.export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
import onnxscript
import torch

from onnxq import dtypes
from onnxq.pytorch.exporting.dynamic_translation import dynamic_table
from onnxq.pytorch.numerics import boundary, rounding_ops  # noqa: F401  # registers the operators

if TYPE_CHECKING:
    from collections.abc import Callable


def translation_table(opset: int) -> dict[Callable[..., object], Callable[..., object]]:
    """A torch operator -> function that emits its ONNX nodes, for that opset.

    Args:
        opset: one that the exporter writes; the nodes are those of this very opset, because the
            exporter cannot convert QuantizeLinear downwards.
    """
    op = getattr(onnxscript, f"opset{opset}")

    def quantize_linear(x, scale, zero_point, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.QuantizeLinear(x, scale, zero_point, axis=axis)

    def dequantize_linear(codes, scale, zero_point, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.DequantizeLinear(codes, scale, zero_point, axis=axis)

    def dequantize_4bits(codes, scale, zero_point, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        if opset < dtypes.INT4.min_opset:  # the same numbers in twice the bytes
            return op.DequantizeLinear(codes, scale, zero_point, axis=axis)
        stored = dtypes.INT4 if codes.dtype == ir.DataType.INT8 else dtypes.UINT4
        dtype = onnx.TensorProto.DataType.Value(stored.onnx)
        narrow = [op.Cast(part, to=dtype) for part in (codes, zero_point)]
        return op.DequantizeLinear(narrow[0], scale, narrow[1], axis=axis)

    def fake_quantize(x, scale, zero_point, qmin: int, qmax: int, axis: int):  # type: ignore[no-untyped-def]  # onnxscript reads it
        stored = _smallest(qmin, qmax)
        dtype = onnx.TensorProto.DataType.Value(stored.onnx)
        zero_point = op.Cast(zero_point, to=dtype)
        codes = op.QuantizeLinear(x, scale, zero_point, axis=axis)
        if (stored.qmin, stored.qmax) != (qmin, qmax):
            limits = [op.Cast(op.Constant(value_int=limit), to=dtype) for limit in (qmin, qmax)]
            codes = op.Clip(codes, *limits)
        return op.DequantizeLinear(codes, scale, zero_point, axis=axis)

    def leave_integers(x):  # type: ignore[no-untyped-def]  # onnxscript reads it
        return op.Max(x)  # onnxq.qdq.tidy.marks.MARK

    return dynamic_table(op) | {
        torch.ops.onnxq.leave_integers.default: leave_integers,
        torch.ops.onnxq.quantize_linear.default: quantize_linear,
        torch.ops.onnxq.dequantize_linear.default: dequantize_linear,
        torch.ops.onnxq.dequantize_4bits.default: dequantize_4bits,
        torch.ops.onnxq.fake_quantize.default: fake_quantize,
        torch.ops.onnxq.learned_fake_quantize.default: fake_quantize,
    }


_STORED = (dtypes.UINT8, dtypes.INT8, dtypes.UINT16, dtypes.INT16)


def _smallest(qmin: int, qmax: int) -> dtypes.QDType:
    """The first type that holds [qmin, qmax]."""
    return next(t for t in _STORED if t.qmin <= qmin and qmax <= t.qmax)
