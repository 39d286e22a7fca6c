"""Logistic function of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.operator import Array, AttributeValue, Case, IntegerOperator, register_integer
from onnxq.operators._emit import MICROSOFT
from onnxq.operators._examples import scales, zero
from onnxq.operators._qlinear import unary, unary_cases
from onnxq.operators.sigmoid import Sigmoid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OP = "QLinearSigmoid"


@register_integer
class QLinearSigmoid(IntegerOperator):
    """Y = 1 / (1 + exp(-X)) of codes: X, X_scale, X_zp, Y_scale, Y_zp; com.microsoft.

    Arithmetic: see Sigmoid.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """Codes of Y."""
        x, plan = unary(OP, inputs)
        return Sigmoid().kernel([x], plan, {})

    def cases(self) -> Iterable[Case]:
        """Types, zero points absent, scales of shape (1,), no elements."""
        return unary_cases((scales(1 / 256), zero(0)))
