"""Logistic function."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operators._function import anywhere
from onnxq.operators._logistic import logistic
from onnxq.operators._tables import look_up, table_of


@op.register
class Sigmoid(op.Operator):
    """Y = 1 / (1 + exp(-X)); ONNX Sigmoid-13.

    Integers: com.microsoft QLinearSigmoid, a table of quantize(f(dequantize(x))), f as ONNX Runtime
    computes it in float32.
    """

    op_type = "Sigmoid"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise, with results in [0, 1] whatever the data."""
        return op.Rule(op.OpCategory.ELEMENTWISE, output_range=(0.0, 1.0))

    def cases(self) -> Iterable[op.Case]:
        yield from anywhere()

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.qlinear("QLinearSigmoid", {})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        p, q = call.qparams_in(0), call.qparams_out()
        return (look_up(table_of(logistic, p, q), x, p.dtype),)

    def float_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """float32, equal to ONNX Runtime's bit for bit."""
        return (logistic(np.asarray(call.inputs[0], np.float32)),)
