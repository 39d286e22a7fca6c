"""Rectifier."""

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    OpCategory,
    Operator,
    Reals,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import normal
from onnxq.operators._clamp import clamp_integers, lower_clamp

BOUNDS = (0.0, float("inf"))


@register
class Relu(Operator):
    """Y = max(X, 0), any shape; ONNX Relu-14.

    Folded into the saturation of the quantizer before it; else max(x, zero_point) on integers.
    """

    op_type = "Relu"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Clamps to [0, inf)."""
        return Rule(OpCategory.CLAMP, clamp=BOUNDS, lowered=True)

    def scaled(self, node: ir.Node, scale: Reals) -> tuple[Mapping[int, Reals], ...]:
        """Scaling the input by s > 0 scales the result by s."""
        return ({0: scale},)

    def cases(self) -> Iterable[Case]:
        """Any rank, empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Clip on integers: ONNX Runtime has Relu for int8 only."""
        return lower_clamp(site, BOUNDS)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Integers of Y. Raises ShapeError where dtypes or qparams differ."""
        return (clamp_integers(call, BOUNDS),)
