"""Clamping to constant bounds: ReLU6, hardtanh."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    OpCategory,
    Operator,
    OperatorLimit,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant, has_input
from onnxq.operators._clamp import Bounds, clamp_integers, lower_clamp

INF = float("inf")


@register
class Clip(Operator):
    """Y = min(max(X, low), high), any shape; ONNX Clip-13, and Clip-6 whose bounds are attributes.

    Folded into the saturation of the quantizer before it; else a Clip between the bounds' integers.
    """

    op_type = "Clip"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Clamps to its bounds, which must be constants."""
        bounds = _bounds(node)
        if bounds is None:
            return Float(
                OperatorLimit("its bounds are computed at run time; constant bounds are needed")
            )
        if bounds[0] > bounds[1]:
            return Float(
                OperatorLimit(f"its lower bound {bounds[0]} is above its upper bound {bounds[1]}")
            )
        return Rule(OpCategory.CLAMP, clamp=bounds, lowered=True)

    def cases(self) -> Iterable[Case]:
        """Bounds on either side, attributes of opset 6, empty batch."""
        x = normal(2, 3, 4)
        low, high = np.float32(-0.5), np.float32(0.75)
        yield Case("both bounds", (x, np.array(low), np.array(high)), (1, 2))
        yield Case("lower only", (x, np.array(low)), (1,))
        yield Case("upper only", (x, None, np.array(high)), (2,))
        yield Case("no bounds", (x,))
        yield Case("bounds beyond the range", (x, np.array(-1e9, np.float32)), (1,))
        yield Case("attributes", (x,), (), {"min": -0.5, "max": 0.75}, opset=10)
        yield Case("empty batch", (normal(0, 3), np.array(low)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Clip on integers."""
        bounds = _bounds(site.node)
        assert bounds is not None, "rule refused it"
        return lower_clamp(site, bounds)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Integers of Y; bounds are reals. Raises ShapeError where dtypes or qparams differ."""
        low, high = [*call.inputs, None, None][1:3]
        bounds = (
            call.real("min", -INF) if low is None else float(low.item()),
            call.real("max", INF) if high is None else float(high.item()),
        )
        return (clamp_integers(call, bounds),)


def _bounds(node: ir.Node) -> Bounds | None:
    """The bounds, infinite where absent; None where they are computed at run time."""
    found = [node.attributes.get_float("min", -INF), node.attributes.get_float("max", INF)]
    for slot in (1, 2):
        if has_input(node, slot):
            value = constant(node, slot)
            if value is None or value.size != 1:
                return None
            found[slot - 1] = float(value.item())
    return found[0], found[1]
