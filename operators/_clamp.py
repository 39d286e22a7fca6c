"""What Relu and Clip share: bounds as codes. The codes of a clamped tensor keep its qparams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operators._check import codes, shared
from onnxq.operators._emit import emit, initializer
from onnxq.qparams import IntArray, QParams, quantize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape

    from onnxq.operator import Array, NodePlan

Bounds = tuple[float, float]


def bound_codes(bounds: Bounds, qparams: QParams) -> tuple[IntArray, IntArray]:
    """The codes nearest to the real bounds, rank 0; infinities give the type's ends."""
    low, high = (quantize(np.asarray(bound, np.float32), qparams) for bound in bounds)
    return low, high


def lower_clamp(
    tape: Tape,
    node: ir.Node,
    plan: NodePlan,
    inputs: Sequence[ir.Value | None],
    bounds: Bounds,
) -> list[ir.Value]:
    """Clip-13 on codes."""
    qparams = shared(node.op_type, plan)
    low, high = bound_codes(bounds, qparams)
    slots = [
        inputs[0],
        initializer(tape, node, "low", low, qparams.dtype),
        initializer(tape, node, "high", high, qparams.dtype),
    ]
    return emit(tape, node, plan, slots, op_type="Clip", attributes={})


def clamp_codes(
    op: str, inputs: Sequence[Array | None], plan: NodePlan, bounds: Bounds
) -> IntArray:
    """min(max(x, low), high) on codes."""
    x = codes(op, inputs, plan, 0)
    low, high = bound_codes(bounds, shared(op, plan))
    return np.asarray(np.minimum(np.maximum(x, low), high))
