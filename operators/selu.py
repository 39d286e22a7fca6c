"""Scaled exponential linear unit."""

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

ALPHA = 1.67326319217681884765625  # of the ONNX schema
GAMMA = 1.05070102214813232421875  # of the ONNX schema


def selu(x: npt.NDArray[np.float64], alpha: float, gamma: float) -> npt.NDArray[np.float64]:
    """The function, its parameters being rounded to float32 as in the model; shape of x."""
    negative = np.float32(alpha) * np.expm1(np.minimum(x, 0))
    return np.float32(gamma) * np.where(x > 0, x, negative)


@register
class Selu(Operator):
    """Y = gamma * X where X > 0, else gamma * alpha * (exp(X) - 1); ONNX Selu-6.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear 1.60,
    a table .69. So integers are a table: the function in float64, rounded once.
    """

    op_type = "Selu"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by table; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("parameters", (normal(2, 3, 4),), (), {"alpha": 0.3, "gamma": 2.0})
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """A table that GatherElements reads."""
        alpha = site.node.attributes.get_float("alpha", ALPHA)
        gamma = site.node.attributes.get_float("gamma", GAMMA)
        function = functools.partial(selu, alpha=alpha, gamma=gamma)
        return lower_function(site, function)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        alpha = call.real("alpha", ALPHA)
        gamma = call.real("gamma", GAMMA)
        function = functools.partial(selu, alpha=alpha, gamma=gamma)
        return (table_kernel(call, function),)
