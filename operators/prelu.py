"""Rectifier with a slope of its own for each channel."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant, infinite_operand
from onnxq.operators._function import around_kernel, lower_around
from onnxq.operators._tables import is_tabulable, look_up_each, lower_table, tabulate
from onnxq.operators.leaky_relu import LeakyRelu
from onnxq.qparams import IntArray, QParams

MAX_TABLES = 4096  # of 256 bytes; slopes beyond are not those of channels


@op.register
class PRelu(op.Operator):
    """Y = X where X >= 0, else slope * X; the slope broadcasts to X; ONNX PRelu-16.

    Integers, for constant slopes: one is com.microsoft QLinearLeakyRelu; more are tables side by
    side, the place's offset added to q. Slopes computed at run time: float32 between integers.
    Measured in an int8 network, ns per element: DequantizeLinear, PRelu and QuantizeLinear 3.8, by
    channel 3.9; QLinearLeakyRelu .24, tables by channel .82.
    """

    op_type = "PRelu"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Constant slopes are not quantized."""
        if reason := infinite_operand(node, (0, 1)):
            return reason
        slope = constant(node, 1)
        if slope is None:
            return op.Rule(
                op.OpCategory.ELEMENTWISE,
                activations=(0, 1),
                precision=op.Precision.FLOAT_BETWEEN_QDQ,
            )
        has_tables = slope.size <= MAX_TABLES
        precision = op.Precision.INT8 if has_tables else op.Precision.FLOAT_BETWEEN_QDQ
        return op.Rule(op.OpCategory.ELEMENTWISE, precision=precision, lowered=has_tables)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 3, 4)
        yield op.Case("one slope", (x, np.array([0.3], np.float32)), (1,))
        yield op.Case("channels", (x, normal(3, 1, seed=1)), (1,))
        yield op.Case("slope by element", (x, normal(2, 3, 4, seed=1)), (1,))
        yield op.Case("at run time", (x, normal(3, 1, seed=1)))
        yield op.Case("empty batch", (normal(0, 3), normal(3, seed=1)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearLeakyRelu, tables that GatherElements reads, or around float."""
        slope = constant(site.node, 1)
        if slope is None or site.plan.inputs[1] is not None or not is_tabulable(site.plan):
            return lower_around(site)
        if slope.size == 1:
            alpha = ir.AttrFloat32("alpha", float(slope.item()))
            bare = op.NodePlan(site.plan.inputs[:1], site.plan.outputs)
            return replace(site, plan=bare, inputs=site.inputs[:1]).qlinear(
                "QLinearLeakyRelu", {"alpha": alpha}
            )
        return lower_table(site, _tables(slope, site.qparams_in(0), site.qparams_out()))

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        slope = call.inputs[1] if len(call.inputs) > 1 and call.plan.inputs[1] is None else None
        if slope is None or call.plan.inputs[0] is None:
            return (around_kernel(call, prelu),)
        if slope.size == 1:
            return LeakyRelu().kernel(
                replace(call, inputs=call.inputs[:1], attributes={"alpha": float(slope.item())})
            )
        x = call.integers(0)
        with call.shape_errors():
            np.broadcast_to(slope, x.shape)
            p, q = call.qparams_in(0), call.qparams_out()
            return (look_up_each(_tables(slope, p, q), x, p),)


def prelu(x: npt.NDArray[np.float64], slope: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The function, shapes broadcasting."""
    return np.where(x >= 0, x, slope * x)


def _tables(slope: op.Array, p: QParams, q: QParams) -> IntArray:
    """Integers of the result for every integer of X: (*slope.shape, 256)."""
    slopes = slope.astype(np.float64)[..., None]
    return tabulate(lambda x: prelu(x, slopes), p, q)
