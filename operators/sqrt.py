"""Square root."""

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
from onnxq.operators._function import lower_around, table_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class Sqrt(Operator):
    """Y = sqrt(X); ONNX Sqrt-13. Codes of numbers below 0 give NaN, whose code is the lowest.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear .44,
    a table .69. So it runs in float32 between codes, within a step of the exact result.
    """

    op_type = "Sqrt"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, in float32 between codes; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = np.abs(normal(2, 3, 4)) + np.float32(0.5)
        yield Case("plain", (x,))
        yield Case("small and large", (x**9,))
        yield Case("rank 0", (np.array(0.7, np.float32),))
        yield Case("empty batch", (x[:0],))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Sqrt between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, np.sqrt),)
