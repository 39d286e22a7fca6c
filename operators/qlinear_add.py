"""Element-wise sum of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.operator import Array, AttributeValue, Case, IntegerOperator, register_integer
from onnxq.operators._emit import MICROSOFT
from onnxq.operators._qlinear import binary, binary_cases
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
        return binary_cases()
