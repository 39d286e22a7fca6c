"""Continuously differentiable exponential linear unit."""

from __future__ import annotations

import functools
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
from onnxq.operators._function import lower_function, table_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

ALPHA = 1.0  # of the ONNX schema


def celu(x: npt.NDArray[np.float64], alpha: float) -> npt.NDArray[np.float64]:
    """The function, alpha being rounded to float32 as in the model; shape of x."""
    slope = float(np.float32(alpha))
    return np.maximum(x, 0) + np.minimum(0, slope * np.expm1(x / slope))


@register
class Celu(Operator):
    """Y = max(0, X) + min(0, alpha * (exp(X / alpha) - 1)); ONNX Celu-12.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear 1.89,
    a table .69. So integers are a table: the function in float64, rounded once.
    """

    op_type = "Celu"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by table; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("parameters", (normal(2, 3, 4),), (), {"alpha": 0.3})
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """A table that GatherElements reads."""
        alpha = site.node.attributes.get_float("alpha", ALPHA)
        function = functools.partial(celu, alpha=alpha)
        return lower_function(site, function)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        alpha = call.real("alpha", ALPHA)
        function = functools.partial(celu, alpha=alpha)
        return (table_kernel(call, function),)
