"""Element-wise product of codes."""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.site import MICROSOFT
from onnxq.operators._qlinear import binary, binary_cases
from onnxq.operators.mul import Mul

OP = "QLinearMul"


@register_integer
class QLinearMul(IntegerOperator):
    """C = A * B of codes: A, A_scale, A_zp, B, B_scale, B_zp, C_scale, C_zp.

    com.microsoft; broadcasts. Arithmetic: see Mul.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Codes of C."""
        operands, plan = binary(call)
        return Mul().kernel(call.planned(operands, plan))

    def cases(self) -> Iterable[Case]:
        """Types, broadcasts on either side, zero points absent and at the ends."""
        return binary_cases()
