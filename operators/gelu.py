"""Gaussian error linear unit."""

from __future__ import annotations

import math
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
from onnxq.operators._function import lower_around, table_kernel
from onnxq.operators.erf import erf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

CUBIC = 0.044715  # Hendrycks and Gimpel, 2016


def by_erf(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Exact: x / 2 * (1 + erf(x / sqrt(2))); shape of x."""
    return np.asarray(x / 2 * (1 + erf(x / math.sqrt(2))))


def by_tanh(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Approximate: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + CUBIC * x^3))); shape of x."""
    return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + CUBIC * x**3))))


@register
class Gelu(Operator):
    """Y = X / 2 * (1 + erf(X / sqrt(2))); ONNX Gelu-20.

    With approximate = "tanh": X / 2 * (1 + tanh(sqrt(2 / pi) * (X + 0.044715 X^3))).

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear .56,
    a table .69. So it runs in float32 between codes, within a step of the exact result.
    """

    op_type = "Gelu"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, in float32 between codes; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("tanh", (normal(2, 3, 4),), (), {"approximate": "tanh"})
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Gelu between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        approximate = call.text("approximate", "none") == "tanh"
        function = by_tanh if approximate else by_erf
        return (table_kernel(call, function),)
