"""Hyperbolic tangent."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operators._function import anywhere, lower_function, table_kernel
from onnxq.operators._logistic import tanh
from onnxq.operators._tables import TABLE_BITS
from onnxq.operators.sigmoid import Sigmoid
from onnxq.qparams import QParams

# 8 bits get the scale 1/128 and the zero point in the middle, which QLinearSigmoid wants.
OUTPUT_RANGE = (-1.0, 127 / 128)


@op.register
class Tanh(op.Operator):
    """Y = (exp(2 X) - 1) / (exp(2 X) + 1); ONNX Tanh-13.

    Integers: Y = 2 / (1 + exp(-2 X)) - 1, so where the result has a scale 1/n, n whole and even, it
    is com.microsoft QLinearSigmoid of X at twice its scale, with half the result's scale and a zero
    point that is lower by n. Other qparams (a group that shares them): a table.
    Measured in an int8 network, ns per element: DequantizeLinear, Tanh and QuantizeLinear .35,
    QLinearSigmoid .24, a table .69.
    """

    op_type = "Tanh"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise, with results in [-1, 1] whatever the data."""
        return op.Rule(op.OpCategory.ELEMENTWISE, output_range=OUTPUT_RANGE, lowered=True)

    def cases(self) -> Iterable[op.Case]:
        yield from anywhere()

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearSigmoid, or a table."""
        as_sigmoid = _as_sigmoid(site.qparams_in(0), site.qparams_out())
        if as_sigmoid is None:
            return lower_function(site, np.tanh)
        return replace(site, plan=as_sigmoid).qlinear("QLinearSigmoid", {})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        as_sigmoid = _as_sigmoid(call.qparams_in(0), call.qparams_out())
        if as_sigmoid is None:
            return (table_kernel(call, np.tanh),)
        return Sigmoid().kernel(replace(call, plan=as_sigmoid))

    def float_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """float32, equal to ONNX Runtime's bit for bit."""
        return (tanh(np.asarray(call.inputs[0], np.float32)),)


def _as_sigmoid(p: QParams, q: QParams) -> op.NodePlan | None:
    """The plan of the logistic function with the same integers; None where there is none."""
    steps = 1 / float(q.scale)
    zero_point = int(q.zero_point) - round(steps)
    if p.dtype != q.dtype or p.dtype.bits != TABLE_BITS or steps % 2 or zero_point < q.dtype.qmin:
        return None
    doubled = QParams(p.scale * np.float32(2), p.zero_point, p.dtype)
    halved = QParams(q.scale / np.float32(2), np.array(zero_point), q.dtype)
    return op.NodePlan((doubled,), (halved,))
