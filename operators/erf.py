"""Error function."""

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
from onnxq.operators._function import SIGNED_UNIT, lower_around, table_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    import onnx_ir as ir


def erf(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The error function, to the last bit or two of float64; shape of x."""
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


@register
class Erf(Operator):
    """Y = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to X; ONNX Erf-13.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear .46,
    a table .69. So it runs in float32 between codes, within a step of the exact result.
    """

    op_type = "Erf"

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
        """Erf between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, erf),)
