"""Rectifier."""

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from onnxq import operator as op
from onnxq.operators._clamp import clamp_integers, lower_clamp
from onnxq.operators._function import anywhere

BOUNDS = (0.0, float("inf"))


@op.register
class Relu(op.Operator):
    """Y = max(X, 0), any shape; ONNX Relu-14.

    Folded into the saturation of the quantizer before it; else max(x, zero_point) on integers.
    """

    op_type = "Relu"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Clamps to [0, inf)."""
        return op.Rule(op.OpCategory.CLAMP, clamp=BOUNDS, lowered=True)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling the input by s > 0 scales the result by s."""
        return ({0: scale},)

    def cases(self) -> Iterable[op.Case]:
        yield from anywhere()

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """Clip on integers: ONNX Runtime has Relu for int8 only."""
        return lower_clamp(site, BOUNDS)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        return (clamp_integers(call, BOUNDS),)
