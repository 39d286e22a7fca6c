"""Mean of integers over windows."""

from collections.abc import Iterable

from onnxq import operator as op
from onnxq.operator.examples import integers, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import channels_first, channels_last, unary
from onnxq.operators.average_pool import AveragePool

OP = "QLinearAveragePool"


@op.register_integer
class QLinearAveragePool(op.IntegerOperator):
    """AveragePool of integers: X, x_scale, x_zp, y_scale, y_zp; com.microsoft.

    `channels_last` says that X and Y are (N, *spatial, C). Arithmetic: see AveragePool.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        x, plan = unary(call, ("x", "y"))
        (y,) = AveragePool().kernel(call.planned([channels_first(call, x)], plan))
        return (channels_last(call, y),)

    def cases(self) -> Iterable[op.Case]:
        x = integers(2, 3, 7, 6)
        p, q = (scales(0.25), zero(7)), (scales(0.25), zero(9))
        signed = (scales(0.07), zero(-128, "int8"))
        fixed = (1, 2, 3, 4)
        pads: dict[str, op.AttributeValue] = {
            "kernel_shape": [3, 3],
            "pads": [1, 0, 2, 1],
            "strides": [2, 3],
        }
        counted: dict[str, op.AttributeValue] = {**pads, "count_include_pad": 1}
        yield op.Case("plain", (x, *p, *q), fixed, {"kernel_shape": [2, 3]})
        yield op.Case("asymmetric pads, stride", (x, *p, *q), fixed, pads)
        yield op.Case("padding counts", (x, *p, *q), fixed, counted)
        yield op.Case(
            "channels last", (integers(2, 7, 6, 3), *p, *q), fixed, {**pads, "channels_last": 1}
        )
        yield op.Case(
            "ceil_mode, channels last, padding counts",
            (integers(2, 7, 6, 3), *p, *q),
            fixed,
            {**counted, "channels_last": 1, "ceil_mode": 1},
        )
        yield op.Case("ceil_mode", (x, *p, *q), fixed, {**pads, "ceil_mode": 1})
        wide: dict[str, op.AttributeValue] = {"kernel_shape": [4], "strides": [2], "ceil_mode": 1}
        yield op.Case("ceil_mode, a window beyond x", (integers(2, 3, 3), *p, *q), fixed, wide)
        for mode in ("SAME_UPPER", "SAME_LOWER"):
            yield op.Case(mode, (x, *p, *q), fixed, {"kernel_shape": [4, 2], "auto_pad": mode})
        yield op.Case(
            "1d, int8",
            (integers(2, 3, 9, dtype="int8"), *signed, *signed),
            fixed,
            {"kernel_shape": [3], "pads": [1, 1]},
        )
        yield op.Case(
            "3d, channels last, int8",
            (integers(1, 4, 5, 4, 2, dtype="int8"), *signed, *signed),
            fixed,
            {"kernel_shape": [2, 3, 2], "channels_last": 1},
        )
        yield op.Case(
            "no zero point of the result", (x, *p, scales(0.3)), (), {"kernel_shape": [2, 2]}
        )
        yield op.Case(
            "empty batch", (integers(0, 3, 7, 6), *p, *q), fixed, {"kernel_shape": [2, 2]}
        )
