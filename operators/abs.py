"""Absolute value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

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
from onnxq.operators._tables import is_tabulable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@register
class Abs(Operator):
    """Y = |X|; ONNX Abs-13.

    Integers: LeakyRelu of slope -1, a table inside com.microsoft QLinearLeakyRelu.
    Measured in an int8 network, ns per element: DequantizeLinear, Abs and QuantizeLinear .23,
    QLinearLeakyRelu .24 (on their own .46 and .32). So it is that one node.
    """

    op_type = "Abs"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by QLinearLeakyRelu; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """QLinearLeakyRelu with alpha = -1; wide codes: around float."""
        if not is_tabulable(site.plan):
            return lower_around(site)
        return site.qlinear("QLinearLeakyRelu", {"alpha": ir.AttrFloat32("alpha", -1.0)})

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        return (table_kernel(call, np.abs),)
