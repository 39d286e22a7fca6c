"""Division by the norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    Form,
    Operator,
    Role,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import normal
from onnxq.operators._function import around_kernel, lower_around

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

    Reals = npt.NDArray[np.float64]

EUCLIDEAN = 2


@register
class LpNormalization(Operator):
    """Y = X / (sum |X|^p)^(1/p) along `axis`, p 1 or 2; where the sum is 0, Y is 0.

    ONNX LpNormalization-22. ONNX Runtime has no integer kernel: it computes in float32 between
    codes.
    """

    op_type = "LpNormalization"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise; results of either norm lie in [-1, 1], and are observed."""
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """Both norms, axes, rows of zeros."""
        x = normal(3, 5, 4)
        yield Case("plain", (x,))
        yield Case("sum of magnitudes", (x,), (), {"axis": 1, "p": 1})
        yield Case("first axis", (x,), (), {"axis": 0, "p": 2})
        zeros = x * (np.arange(3, dtype=np.float32) > 0).reshape(3, 1, 1)
        yield Case("rows of zeros", (zeros,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """The operator between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        axis, p = call.integer("axis", -1), call.integer("p", EUCLIDEAN)

        def function(x: Reals) -> Reals:
            powers = np.square(x) if p == EUCLIDEAN else np.abs(x)
            total = powers.sum(axis, keepdims=True)
            norm = np.sqrt(total) if p == EUCLIDEAN else total
            return np.where(norm == 0, 0, x / norm)

        return (around_kernel(call, function),)
