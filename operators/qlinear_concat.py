"""Tensors of integers side by side."""

from collections.abc import Iterable

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, NodePlan, register_integer
from onnxq.operator.examples import integers, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import part
from onnxq.operators._tables import requantize_integers
from onnxq.operators.concat import Concat

HEAD = 2  # inputs before the first part: Y_scale, Y_zp


@register_integer
class QLinearConcat(IntegerOperator):
    """Concat of integers along `axis`: Y_scale, Y_zp, then X, X_scale, X_zp of each part.

    com.microsoft. Each part goes through a table, quantize(dequantize(x)), or is copied where its
    qparams are those of Y.
    """

    op_type = "QLinearConcat"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        call.operand(1, "Y_zero_point")
        out = call.output_qparams("Y", 0)
        if len(call.inputs) <= HEAD or (len(call.inputs) - HEAD) % 3:
            raise call.shape_error(
                f"{len(call.inputs)} inputs; wanted Y_scale, Y_zero_point and three for each part."
            )
        parts = []
        for slot in range(HEAD, len(call.inputs), 3):
            name = f"part {(slot - HEAD) // 3}"
            call.operand(slot + 2, f"{name}, its zero point")
            x, p = part(call, name, slot, out.dtype)
            parts.append(requantize_integers(x, p, out))
        plan = NodePlan((out,) * len(parts), (out,))
        return Concat().kernel(call.planned(parts, plan))

    def cases(self) -> Iterable[Case]:
        y = (scales(0.25), zero(100))
        a, b = integers(2, 3, 4), integers(2, 5, 4, seed=1)
        other = (scales(0.125), zero(7))
        fixed = (0, 1, 3, 4, 6, 7)
        yield Case("one copied, one rescaled", (*y, a, *y, b, *other), fixed, {"axis": 1})
        yield Case(
            "saturates, negative axis",
            (*y, integers(2, 30), scales(3.5), zero(255), integers(2, 3), *other),
            fixed,
            {"axis": -1},
        )
        yield Case("one part", (*y, a, *other), (0, 1, 3, 4), {"axis": 0})
        signed = (scales(0.5), zero(-128, "int8"))
        yield Case(
            "int8, qparams computed at run time",
            (
                *signed,
                integers(2, 30, dtype="int8"),
                scales(0.3),
                zero(5, "int8"),
                integers(2, 8, dtype="int8", seed=1),
                *signed,
            ),
            (),
            {"axis": 1},
        )
        yield Case("an empty part", (*y, integers(2, 0, 4), *other, b, *other), fixed, {"axis": 1})
