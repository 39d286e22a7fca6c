"""Instance normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from onnxq.operators._normalize import EPSILON, normalized, per_channel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir

    Reals = npt.NDArray[np.float64]


@register
class InstanceNormalization(Operator):
    """Y = (X - mean) / sqrt(variance + epsilon) * scale + B over the spatial axes.

    ONNX InstanceNormalization-22, 1 to 3 of them; scale and B per channel. ONNX Runtime has no
    integer kernel: it computes in float32 between codes, scale and B are float.
    """

    op_type = "InstanceNormalization"

    def rule(self, node: ir.Node) -> Rule | Float:
        """X is an activation, scale and B stay as they are."""
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """1 to 3 axes, constant planes, empty batch."""
        scale, b = normal(3, seed=1), normal(3, seed=2)
        yield Case("plain", (normal(2, 3, 5, 4), scale, b), (1, 2))
        yield Case("1d", (normal(2, 3, 9), scale, b), (1, 2), {"epsilon": 0.1})
        yield Case("3d", (normal(2, 3, 2, 4, 3), scale, b), (1, 2))
        yield Case("parameters computed at run time", (normal(2, 3, 5, 4), scale, b))
        yield Case("constant planes", (0 * normal(2, 3, 5, 4) + 1, scale, b), (1, 2))
        yield Case("empty batch", (normal(0, 3, 5, 4), scale, b), (1, 2))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """The operator between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        epsilon = call.real("epsilon", EPSILON)

        def function(x: Reals, scale: Reals, bias: Reals) -> Reals:
            y = normalized(x, tuple(range(2, x.ndim)), epsilon)
            return y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)

        return (around_kernel(call, function),)
