"""Element-wise quotient."""

import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant, constant_operand, infinite_operand, is_constant
from onnxq.operators._channel_scales import on_operands
from onnxq.operators._function import around_kernel, lower_around
from onnxq.operators._number import is_scale, lower_with_number, number_kernel, product_agrees
from onnxq.operators._tables import is_tabulable


@op.register
class Div(op.Operator):
    """C = A / B with broadcasting; ONNX Div-14.

    An integer of 0 in B gives infinity, or NaN for 0 / 0.

    By one constant number: com.microsoft QLinearMul of A and float32(1 / B), with that scale;
    rounded once. Else: in float32 between integers, a constant operand as it is. Measured in an
    int8 network, ns per element: DequantizeLinear, Div by a number and QuantizeLinear .32,
    QLinearMul .16. Of two tensors, there is no integer kernel.
    """

    op_type = "Div"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """A constant operand is not quantized; constant divisors of 0 leave no scale for C."""
        divisor = constant(node, 1)
        if divisor is not None and not divisor.all():
            return op.Float(
                op.InfiniteOperand("a constant divisor holds 0: no scale can hold the quotients")
            )
        if reason := infinite_operand(node, (0,)):
            return reason
        if divisor is not None and number(divisor) is not None:
            return op.Rule(op.OpCategory.ELEMENTWISE, lowered=True)
        varying = tuple(slot for slot in (0, 1) if not is_constant(node, slot))
        return op.Rule(
            op.OpCategory.ELEMENTWISE, activations=varying, precision=op.Precision.FLOAT_BETWEEN_QDQ
        )

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """Constant divisors are factors; small divisors that vary magnify all errors."""
        divisor, dividend = constant(node, 1), constant_operand(node)
        if divisor is None and dividend is not None:
            return (op.Curve(1, functools.partial(np.divide, dividend), -1.0),)
        if divisor is None:
            return (op.Curve(1, np.reciprocal, -1.0), op.Factored(0, 1, -1.0))
        with np.errstate(divide="ignore"):  # by 0: infinite amplification
            amplification = float((1 / np.square(divisor, dtype=np.float64)).mean())
        return (op.Linear((0,), amplification),)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling the result scales the dividend, input 0."""
        dividend = on_operands(node, (0,), scale)
        return () if dividend is None else (dividend,)

    def cases(self) -> Iterable[op.Case]:
        x, positive = normal(2, 3, 4), np.abs(normal(2, 3, 4, seed=1)) + np.float32(1)
        yield op.Case("number", (x, np.array(3, np.float32)), (1,))
        yield op.Case("negative number", (x, np.array([-0.3], np.float32)), (1,))
        yield op.Case("constant vector", (x, positive[0, 0]), (1,))
        yield op.Case("of a constant", (x[0, 0], positive), (0,))
        yield op.Case("two tensors", (x, positive))
        yield op.Case("zeros", (x, np.zeros(4, np.float32)), (1,))
        yield op.Case("empty batch", (normal(0, 3), np.array(3, np.float32)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearMul by the reciprocal, or around float."""
        divisor = constant(site.node, 1)
        factor = None if divisor is None else number(divisor)
        if factor is None or site.plan.inputs[1] is not None or not is_tabulable(site.plan):
            return lower_around(site)
        return lower_with_number(site, site.inputs[0], "QLinearMul", factor)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        divisor = call.inputs[1] if call.plan.inputs[1] is None else None
        factor = None if divisor is None or call.plan.inputs[0] is None else number(divisor)
        if factor is None:
            return (around_kernel(call, np.divide),)
        return (number_kernel(call, "QLinearMul", factor),)

    def agrees(self, call: op.Call) -> bool:
        """Whether every machine multiplies all integers by the reciprocal alike."""
        divisor = call.inputs[1] if len(call.inputs) > 1 else None
        factor = None if divisor is None or call.plan.inputs[0] is None else number(divisor)
        return factor is None or product_agrees(call, factor)


def number(divisor: op.Array) -> float | None:
    """1 / divisor, where it is one number whose reciprocal is a scale; else None."""
    if divisor.size != 1 or divisor.dtype != np.float32 or not divisor.all():
        return None
    factor = 1 / float(divisor.item())
    return factor if is_scale(abs(factor)) else None
