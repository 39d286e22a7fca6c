"""Consecutive parts along an axis."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import ints, normal


@op.register
class Split(op.Operator):
    """Y_0, Y_1, ... = X cut along `axis`; ONNX Split-18 and 13."""

    op_type = "Split"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Copies integers, so all outputs have the input's qparams."""
        return op.Rule(
            op.OpCategory.MOVEMENT, outputs=tuple(range(len(node.outputs))), shares_qparams=True
        )

    def cases(self) -> Iterable[op.Case]:
        x = normal(4, 6)
        yield op.Case("sizes", (x, ints(1, 3, 2)), (1,), {"axis": 1}, outputs=3)
        yield op.Case("equal parts", (x,), (), {"axis": -1, "num_outputs": 2}, outputs=2)
        yield op.Case("last part smaller", (normal(5, 2),), (), {"num_outputs": 3}, outputs=3)
        yield op.Case("opset 13", (x,), (), {"axis": 0}, outputs=2, opset=13)
        yield op.Case("empty batch", (normal(0, 6), ints(2, 4)), (1,), {"axis": 1}, outputs=2)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.on_integers()

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        call.shared()
        axis = call.axis("axis", 0, x.ndim)
        parts = call.integer("num_outputs", len(call.plan.outputs))
        size = x.shape[axis]
        sizes = call.optional_vector(1)
        if sizes is None:
            part = -(-size // max(parts, 1))
            sizes = [part] * (parts - 1) + [size - part * (parts - 1)]
        if sum(sizes) != size or len(sizes) != parts or min(sizes, default=0) < 0:
            raise call.shape_error(
                f"{parts} parts of sizes {sizes} along axis {axis} of x {x.shape}."
            )
        return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))

    def plain_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """The parts of x, as many as sizes or num_outputs say."""
        x, sizes = np.asarray(call.inputs[0]), call.inputs[1] if len(call.inputs) > 1 else None
        parts = call.integer("num_outputs", 0) if sizes is None else len(sizes)
        if not parts:
            raise UnsupportedError(f"{call.op_type}: wanted sizes, or num_outputs of opset 18.")
        axis = call.integer("axis", 0)
        part = -(-x.shape[axis] // parts)
        borders = np.arange(1, parts) * part if sizes is None else np.cumsum(sizes)[:-1]
        return tuple(np.split(x, borders.astype(np.int64), axis))
