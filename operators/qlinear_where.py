"""One of two tensors of integers, by a condition."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, NodePlan, register_integer
from onnxq.operator.examples import integers, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import part
from onnxq.operators._tables import requantize_integers
from onnxq.operators.where import Where


@register_integer
class QLinearWhere(IntegerOperator):
    """Where of integers: condition, X, x_scale, x_zp, Y, y_scale, y_zp, z_scale, z_zp.

    com.microsoft. X and Y go through a table each, quantize(dequantize(x)), or are copied where
    their qparams are those of the result.
    """

    op_type = "QLinearWhere"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        condition = call.operand(0, "condition")
        if condition.dtype != np.bool_:
            raise call.shape_error(f"the condition has dtype {condition.dtype}; wanted bool.")
        qdtype = call.qdtype(call.operand(1, "X"), "X")
        for slot, name in ((3, "x"), (6, "y"), (8, "z")):
            call.operand(slot, f"{name}_zero_point")
        x, p = part(call, "x", 1, qdtype)
        y, q = part(call, "y", 4, qdtype)
        out = call.qparams("z", 7, qdtype)
        plan = NodePlan((None, out, out), (out,))
        operands = [condition, requantize_integers(x, p, out), requantize_integers(y, q, out)]
        return Where().kernel(call.planned(operands, plan))

    def cases(self) -> Iterable[Case]:
        x, y = integers(3, 40), integers(3, 40, seed=1)
        mask = x > y
        p, q, z = (scales(0.25), zero(7)), (scales(0.125), zero(200)), (scales(0.25), zero(100))
        fixed = (2, 3, 5, 6, 7, 8)
        yield Case("plain", (mask, x, *p, y, *q, *z), fixed)
        yield Case("one copied", (mask, x, *z, y, *q, *z), fixed)
        yield Case("broadcasts", (mask[:, :1], x, *p, integers(40), *q, *z), fixed)
        yield Case("scalar", (mask, x, *p, zero(9), *q, *z), fixed)
        signed = (scales(0.5), zero(-128, "int8"))
        yield Case(
            "int8",
            (
                mask,
                integers(3, 40, dtype="int8"),
                scales(0.3),
                zero(5, "int8"),
                integers(3, 40, dtype="int8", seed=1),
                *signed,
                *signed,
            ),
            fixed,
        )
        yield Case("empty", (mask[:0], x[:0], *p, y[:0], *q, *z), fixed)
