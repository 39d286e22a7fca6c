"""Layer normalization."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    Form,
    NodeCall,
    Operator,
    Role,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import normal
from onnxq.operators._function import around_kernel, lower_around
from onnxq.operators._normalize import EPSILON, normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir

    Reals = npt.NDArray[np.float64]


@register
class LayerNormalization(Operator):
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + B over the axes from `axis` on.

    ONNX LayerNormalization-17. ONNX Runtime has no integer kernel: it computes in float32 between
    codes, Scale and B are float.
    """

    op_type = "LayerNormalization"

    def rule(self, node: ir.Node) -> Rule | Float:
        """X is an activation, Scale and B stay as they are."""
        if len(node.outputs) > 1:
            return Float("its mean and deviation are read too")
        return Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """Axes, without B, constant rows, empty batch."""
        x, scale, b = normal(3, 5, 8), normal(8, seed=1), normal(8, seed=2)
        yield Case("plain", (x, scale, b), (1, 2))
        yield Case("no bias", (x, scale), (1,), {"epsilon": 0.1})
        both = (x, normal(5, 8, seed=1), normal(5, 8, seed=2))
        yield Case("two axes", both, (1, 2), {"axis": 1})
        yield Case("parameters computed at run time", (x, scale, b))
        yield Case("constant rows", (0 * x + 1, scale, b), (1, 2))
        yield Case("empty batch", (normal(0, 5, 8), scale, b), (1, 2))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """The operator between DequantizeLinear and QuantizeLinear."""
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        epsilon = call.real("epsilon", EPSILON)

        def function(x: Reals, scale: Reals, *bias: Reals) -> Reals:
            axes = tuple(range(call.axis("axis", -1, x.ndim), x.ndim))
            return normalized(x, axes, epsilon) * scale + sum(bias)

        return (around_kernel(replace(call, inputs=_present(call)), function),)


def _present(call: NodeCall) -> Sequence[Array | None]:
    """Without a B that is absent."""
    return call.inputs[:2] if len(call.inputs) > 2 and call.inputs[2] is None else call.inputs
