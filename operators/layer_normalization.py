"""Layer normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    Float,
    Form,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)
from onnxq.operators._around import around_kernel, lower_around
from onnxq.operators._attributes import integer, real
from onnxq.operators._check import axis_within
from onnxq.operators._examples import normal
from onnxq.operators._normalize import EPSILON, normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    import onnx_ir as ir
    from onnx_ir.tape import Tape

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

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """The operator between DequantizeLinear and QuantizeLinear."""
        return lower_around(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        axis, epsilon = integer(attributes, "axis", -1), real(attributes, "epsilon", EPSILON)

        def function(x: Reals, scale: Reals, *bias: Reals) -> Reals:
            axes = tuple(range(axis_within("LayerNormalization", axis, x.ndim), x.ndim))
            return normalized(x, axes, epsilon) * scale + sum(bias)

        return (around_kernel("LayerNormalization", _present(inputs), plan, function),)


def _present(inputs: Sequence[Array | None]) -> Sequence[Array | None]:
    """Without a B that is absent."""
    return inputs[:2] if len(inputs) > 2 and inputs[2] is None else inputs
