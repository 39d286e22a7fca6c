"""Mean of integers over windows."""

from collections.abc import Iterable

from onnxq import operator as op
from onnxq.operator.examples import integers, scales, shapes, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import channels_first, channels_last, unary
from onnxq.operators.average_pool import AveragePool


@op.register_integer
class QLinearAveragePool(op.IntegerOperator):
    """AveragePool of integers: X, x_scale, x_zp, y_scale, y_zp; com.microsoft.

    `channels_last` says that X and Y are (N, *spatial, C). Arithmetic: see AveragePool.
    """

    op_type = "QLinearAveragePool"
    domains = (MICROSOFT,)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        x, plan = unary(call, ("x", "y"))
        (y,) = AveragePool().kernel(call.planned([channels_first(call, x)], plan))
        return (channels_last(call, y),)

    def cases(self) -> Iterable[op.Case]:
        p, q = (scales(0.25), zero(7)), (scales(0.25), zero(9))
        signed = (scales(0.07), zero(-128, "int8"))
        fixed = (1, 2, 3, 4)
        for case in AveragePool().cases():
            (shape,) = shapes(case)
            yield op.Case(case.name, (integers(*shape), *p, *q), fixed, case.attributes)
        pads: dict[str, op.AttributeValue] = {
            "kernel_shape": [3, 3],
            "pads": [1, 0, 2, 1],
            "strides": [2, 3],
        }
        last = (integers(2, 7, 6, 3), *p, *q)
        yield op.Case("channels last", last, fixed, {**pads, "channels_last": 1})
        counted = {**pads, "count_include_pad": 1, "channels_last": 1, "ceil_mode": 1}
        yield op.Case("ceil_mode, channels last, padding counts", last, fixed, counted)
        yield op.Case(
            "ceil_mode, pads", (integers(2, 3, 7, 6), *p, *q), fixed, {**pads, "ceil_mode": 1}
        )
        wide: dict[str, op.AttributeValue] = {"kernel_shape": [4], "strides": [2], "ceil_mode": 1}
        yield op.Case("ceil_mode, a window beyond x", (integers(2, 3, 3), *p, *q), fixed, wide)
        deep = (integers(1, 4, 5, 4, 2, dtype="int8"), *signed, *signed)
        yield op.Case("3d, int8", deep, fixed, {"kernel_shape": [2, 3, 2], "channels_last": 1})
        bare = (integers(2, 3, 7, 6), *p, scales(0.3))
        yield op.Case("no zero point of the result", bare, (), {"kernel_shape": [2, 2]})
