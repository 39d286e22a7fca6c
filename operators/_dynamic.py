"""Writes what dynamic quantization is made of: run-time codes of activations, integer products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from onnx_ir.tape import Tape


def quantized_at_run_time(
    tape: Tape, node: ir.Node, label: str, x: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(codes, scale, zero point) of a float tensor: DynamicQuantizeLinear, uint8."""
    name = f"{node.name}_{label}_quantize"
    codes, scale, zero_point = tape.op_multi_out(
        "DynamicQuantizeLinear", [x], num_outputs=3, name=name
    )
    codes.type, codes.shape = ir.TensorType(ir.DataType.UINT8), x.shape
    scale.type, scale.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(())
    zero_point.type, zero_point.shape = ir.TensorType(ir.DataType.UINT8), ir.Shape(())
    return codes, scale, zero_point
