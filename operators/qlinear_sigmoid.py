"""Logistic function of integers."""

from collections.abc import Iterable

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.examples import scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import unary, unary_cases
from onnxq.operators.sigmoid import Sigmoid


@register_integer
class QLinearSigmoid(IntegerOperator):
    """Y = 1 / (1 + exp(-X)) of integers: X, X_scale, X_zp, Y_scale, Y_zp; com.microsoft.

    Arithmetic: see Sigmoid.
    """

    op_type = "QLinearSigmoid"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        x, plan = unary(call)
        return Sigmoid().kernel(call.planned([x], plan))

    def cases(self) -> Iterable[Case]:
        return unary_cases((scales(1 / 256), zero(0)))
