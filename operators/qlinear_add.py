"""Element-wise sum of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.operator import Array, AttributeValue, Case, IntegerOperator, register_integer
from onnxq.operators._emit import MICROSOFT
from onnxq.operators._examples import codes, scales, zero
from onnxq.operators._qlinear import binary
from onnxq.operators.add import Add

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OP = "QLinearAdd"


@register_integer
class QLinearAdd(IntegerOperator):
    """C = A + B of codes: A, A_scale, A_zp, B, B_scale, B_zp, C_scale, C_zp.

    com.microsoft; broadcasts. Arithmetic: see Add.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """Codes of C."""
        operands, plan = binary(OP, inputs)
        return Add().kernel(operands, plan, {})

    def cases(self) -> Iterable[Case]:
        """Types, broadcasts on either side, zero points absent and at the ends."""
        x, y = codes(2, 3, 4), codes(2, 3, 4, seed=1)
        a, b, c = (scales(0.25), zero(7)), (scales(0.125), zero(200)), (scales(0.5), zero(128))
        fixed = (1, 2, 4, 5, 6, 7)
        yield Case("same shape", (x, *a, y, *b, *c), fixed)
        yield Case("inner broadcast", (codes(2, 3, 1), *a, y, *b, *c), fixed)
        yield Case("inner broadcast of b", (x, *a, codes(2, 3, 1), *b, *c), fixed)
        yield Case("scalar first", (codes(1), *a, y, *b, *c), fixed)
        yield Case("vector of another rank", (x, *a, codes(4), *b, *c), fixed)
        yield Case("outer product", (codes(3, 1), *a, codes(1, 4), *b, *c), fixed)
        yield Case("no zero point of the result", (x, *a, y, *b, scales(0.6)), fixed[:-1])
        low, high = zero(-128, "int8"), zero(127, "int8")
        yield Case(
            "int8, zero points at the ends",
            (
                codes(5, 7, dtype="int8"),
                scales(0.1),
                low,
                codes(5, 7, dtype="int8", seed=1),
                scales(0.07),
                high,
                scales(0.11),
                low,
            ),
            fixed,
        )
        yield Case("empty", (codes(0, 3), *a, codes(3), *b, *c), fixed)
