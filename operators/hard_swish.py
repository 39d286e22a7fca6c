"""Swish of straight pieces."""

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

    import numpy.typing as npt
    import onnx_ir as ir


def hard_swish(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Shape of x: x * clip(x / 6 + 1 / 2, 0, 1)."""
    return np.asarray(x * np.clip(x / 6 + 0.5, 0, 1))


@register
class HardSwish(Operator):
    """Y = X * max(0, min(1, X / 6 + 1 / 2)); ONNX HardSwish-14.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear .38, a
    table .69, QLinearAdd and QLinearMul .24. These two round the gate to 8 bits in between: a tenth
    of the results differ, by up to 4 steps. So it runs in float32 between codes.
    """

    op_type = "HardSwish"

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
        """HardSwish between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, hard_swish),)
