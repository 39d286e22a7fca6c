"""Mean of integers over all spatial axes."""

from collections.abc import Iterable

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.examples import integers, scales, shapes, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import channels_first, channels_last, unary
from onnxq.operators.global_average_pool import GlobalAveragePool


@register_integer
class QLinearGlobalAveragePool(IntegerOperator):
    """GlobalAveragePool of integers: X, x_scale, x_zp, y_scale, y_zp; com.microsoft.

    `channels_last` says that X and Y are (N, *spatial, C). Arithmetic: see GlobalAveragePool.
    """

    op_type = "QLinearGlobalAveragePool"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        x, plan = unary(call, ("x", "y"))
        (y,) = GlobalAveragePool().kernel(call.planned([channels_first(call, x)], plan))
        return (channels_last(call, y),)

    def cases(self) -> Iterable[Case]:
        p, q = (scales(0.25), zero(7)), (scales(0.125), zero(200))
        signed = (scales(0.07), zero(-128, "int8"))
        fixed = (1, 2, 3, 4)
        last = {"channels_last": 1}
        for case in GlobalAveragePool().cases():
            (shape,) = shapes(case)
            yield Case(case.name, (integers(*shape), *p, *q), fixed)
        yield Case("channels last", (integers(2, 7, 6, 3), *p, *q), fixed, last)
        yield Case("3d, channels last", (integers(1, 4, 5, 4, 2), *p, *q), fixed, last)
        yield Case("int8", (integers(2, 3, 9, dtype="int8"), *signed, *signed), fixed)
