"""Root mean square normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

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
from onnxq.operators._function import around_kernel, lower_around
from onnxq.operators._normalize import EPSILON, root_mean_square_normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir

    Reals = npt.NDArray[np.float64]


@register
class RMSNormalization(Operator):
    """Y = X / sqrt(mean(X^2) + epsilon) * scale over the axes from `axis` on.

    ONNX RMSNormalization-23. ONNX Runtime has no integer kernel: it computes in float32 between
    codes, scale is float.
    """

    op_type = "RMSNormalization"

    def rule(self, node: ir.Node) -> Rule | Float:
        """X is an activation, scale stays as it is."""
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """Axes, rows of zeros, empty batch."""
        x, scale = normal(3, 5, 8), normal(8, seed=1)
        yield Case("plain", (x, scale), (1,), opset=23)
        yield Case("large epsilon", (x, scale), (1,), {"epsilon": 0.1}, opset=23)
        yield Case("two axes", (x, normal(5, 8, seed=1)), (1,), {"axis": 1}, opset=23)
        yield Case("scale computed at run time", (x, scale), opset=23)
        zeros = x * (np.arange(3, dtype=np.float32) > 0).reshape(3, 1, 1)
        yield Case("rows of zeros", (zeros, scale), (1,), opset=23)
        yield Case("empty batch", (normal(0, 5, 8), scale), (1,), opset=23)

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """The operator between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        epsilon = call.real("epsilon", EPSILON)

        def function(x: Reals, scale: Reals) -> Reals:
            axes = tuple(range(call.axis("axis", -1, x.ndim), x.ndim))
            return root_mean_square_normalized(x, axes, epsilon) * scale

        return (around_kernel(call, function),)
