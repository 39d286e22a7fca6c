"""Self-regularized non-monotonic activation."""

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
from onnxq.operators._function import lower_function, table_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    import onnx_ir as ir


def mish(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Shape of x: x * tanh(softplus(x))."""
    return np.asarray(x * np.tanh(np.logaddexp(0, x)))


@register
class Mish(Operator):
    """Y = X * tanh(ln(1 + exp(X))); ONNX Mish-18.

    Measured in an int8 network, ns per element: DequantizeLinear, it (which ONNX Runtime runs as
    Softplus, Tanh and Mul) and QuantizeLinear 10.2, a table .69. So integers are a table: the
    function in float64, rounded once.
    """

    op_type = "Mish"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by table; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """A table that GatherElements reads."""
        return lower_function(site, mish)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, mish),)
