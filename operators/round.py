"""Rounding to the nearest whole number."""

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
class Round(Operator):
    """Y = the whole number nearest to X, halves to even; ONNX Round-11.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear .32,
    a table .69. So it runs in float32 between codes, within a step of the exact result.
    """

    op_type = "Round"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, in float32 between codes; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Round between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, np.rint),)
