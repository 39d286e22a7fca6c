"""Sine."""

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
from onnxq.operators._function import SIGNED_UNIT, lower_function, table_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class Sin(Operator):
    """Y = sin(X), X in radians; ONNX Sin-7.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear 1.40,
    a table .69. So integers are a table: the function in float64, rounded once.
    """

    op_type = "Sin"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by table; results in [-1, 1] whatever the data."""
        return Rule(Role.ELEMENTWISE, output_range=SIGNED_UNIT, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """A table that GatherElements reads."""
        return lower_function(site, np.sin)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, np.sin),)
