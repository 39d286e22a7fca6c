"""Rectifier of integers, with a slope below 0."""

from collections.abc import Iterable

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.examples import integers, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import unary, unary_cases
from onnxq.operators.leaky_relu import LeakyRelu


@register_integer
class QLinearLeakyRelu(IntegerOperator):
    """Y = X where X >= 0, else alpha * X, of integers: X, X_scale, X_zp, Y_scale, Y_zp.

    com.microsoft. Arithmetic: see LeakyRelu.
    """

    op_type = "QLinearLeakyRelu"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        x, plan = unary(call)
        return LeakyRelu().kernel(call.planned([x], plan))

    def cases(self) -> Iterable[Case]:
        yield from unary_cases((scales(0.04), zero(50)), {"alpha": 0.3})
        falling = (integers(300), scales(0.03), zero(128), scales(1 / 256), None)
        yield Case("negative slope", falling, (), {"alpha": -0.25})
