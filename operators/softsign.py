"""Smooth sign."""

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
from onnxq.operators._function import SIGNED_UNIT, lower_around, table_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    import onnx_ir as ir


def softsign(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Shape of x: x / (1 + |x|)."""
    return np.asarray(x / (1 + np.abs(x)))


@register
class Softsign(Operator):
    """Y = X / (1 + |X|); ONNX Softsign-1.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear .31,
    a table .69. So it runs in float32 between codes, within a step of the exact result.
    """

    op_type = "Softsign"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, in float32 between codes; results in [-1, 1] whatever the data."""
        return Rule(Role.ELEMENTWISE, output_range=SIGNED_UNIT, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Softsign between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, softsign),)
