"""Clamping to constant bounds: ReLU6, hardtanh."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant, has_input
from onnxq.operators._clamp import Bounds, clamp_integers, lower_clamp

INF = float("inf")


@op.register
class Clip(op.Operator):
    """Y = min(max(X, low), high), any shape; ONNX Clip-13, and Clip-6 whose bounds are attributes.

    Folded into the saturation of the quantizer before it; else a Clip between the bounds' integers.
    """

    op_type = "Clip"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Clamps to its bounds, which must be constants."""
        bounds = _bounds(node)
        if bounds is None:
            return op.Float.because(
                "its bounds are computed at run time; constant bounds are needed"
            )
        if bounds[0] > bounds[1]:
            return op.Float.because(
                f"its lower bound {bounds[0]} is above its upper bound {bounds[1]}"
            )
        return op.Rule(op.OpCategory.CLAMP, clamp=bounds, lowered=True)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 3, 4)
        low, high = np.float32(-0.5), np.float32(0.75)
        yield op.Case("both bounds", (x, np.array(low), np.array(high)), (1, 2))
        yield op.Case("lower only", (x, np.array(low)), (1,))
        yield op.Case("upper only", (x, None, np.array(high)), (2,))
        yield op.Case("no bounds", (x,))
        yield op.Case("bounds beyond the range", (x, np.array(-1e9, np.float32)), (1,))
        yield op.Case("attributes", (x,), (), {"min": -0.5, "max": 0.75}, opset=10)
        yield op.Case("empty batch", (normal(0, 3), np.array(low)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """Clip on integers."""
        bounds = _bounds(site.node)
        assert bounds is not None, "rule refused it"
        return lower_clamp(site, bounds)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
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
