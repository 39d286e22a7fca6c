"""Logistic function of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import Array, AttributeValue, Case, IntegerOperator, register_integer
from onnxq.operators._emit import MICROSOFT
from onnxq.operators._examples import codes, scales, zero
from onnxq.operators._qlinear import unary
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
        ends = (scales(1 / 256), zero(0))
        fixed = (1, 2, 3, 4)
        yield Case("plain", (codes(2, 3, 50), scales(0.05), zero(128), *ends), fixed)
        yield Case("no zero points", (codes(300), scales(0.03), None, scales(1 / 256), None))
        yield Case(
            "int8, shapes (1,)",
            (
                codes(300, dtype="int8"),
                np.full(1, 0.25, np.float32),
                np.full(1, -5, np.int8),
                np.full(1, 0.25, np.float32),
                np.full(1, -128, np.int8),
            ),
            fixed,
        )
        yield Case("rank 0", (zero(7), scales(0.05), zero(128), *ends), fixed)
        yield Case("empty", (codes(0, 3), scales(0.05), zero(128), *ends), fixed)
