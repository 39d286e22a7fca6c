"""Exponentials of integers that sum to 1."""

import math
from collections.abc import Iterable

from onnxq.errors import UnsupportedError
from onnxq.operator import Array, Call, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.examples import integers, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import unary
from onnxq.operators.softmax import OPSET, Softmax


@register_integer
class QLinearSoftmax(IntegerOperator):
    """Softmax of integers: X, X_scale, X_zp, y_scale, y_zp; com.microsoft.

    `opset` says what `axis` means: from 13 on that axis, before it that one and all behind it.
    Arithmetic: see Softmax.
    """

    op_type = "QLinearSoftmax"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Integers of Y.

        Refuses what overflows in ONNX Runtime, and no elements, where it crashes.
        """
        x, plan = unary(call, ("X", "y"))
        call.operand(4, "y_zero_point")
        opset = call.integer("opset", OPSET)
        axis = call.integer("axis", -1 if opset >= OPSET else 1)
        if not -x.ndim <= axis < x.ndim:
            raise call.shape_error(f"axis {axis}, but X has shape {x.shape}.")
        if x.size == 0:
            raise UnsupportedError(
                f"{call.op_type}: X {x.shape} has no elements; ONNX Runtime fails on it."
            )
        if opset >= OPSET:
            return Softmax().kernel(Call(call.op_type, [x], plan, attributes={"axis": axis}))
        rows = x.reshape(math.prod(x.shape[: axis % x.ndim]), -1)
        (y,) = Softmax().kernel(Call(call.op_type, [rows], plan, attributes={"axis": 1}))
        return (y.reshape(x.shape),)

    def cases(self) -> Iterable[Case]:
        x = integers(2, 30, 4)
        p, q = (scales(0.05), zero(128)), (scales(1 / 256), zero(0))
        fixed = (1, 2, 3, 4)
        yield Case("last axis", (x, *p, *q), fixed, {"axis": -1, "opset": 13})
        yield Case("another axis", (x, *p, *q), fixed, {"axis": 1, "opset": 13})
        yield Case("opset 12: two axes", (x, *p, *q), fixed, {"axis": 1, "opset": 12})
        yield Case("wide", (x, scales(0.9), zero(3), *q), fixed, {"axis": 1, "opset": 13})
        yield Case("no zero point", (x, scales(0.1), None, *q), (1, 3, 4), {"opset": 13})
        yield Case(
            "int8",
            (
                integers(3, 40, dtype="int8"),
                scales(0.05),
                zero(9, "int8"),
                q[0],
                zero(-128, "int8"),
            ),
            fixed,
            {"axis": -1, "opset": 13},
        )
