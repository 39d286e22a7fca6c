"""The largest or smallest elements, and their places."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import ints, normal


@op.register
class TopK(op.Operator):
    """Y, I = the k largest (or smallest) elements of X along `axis`, sorted; ONNX TopK-11.

    Scales are positive, so integers are ordered as the numbers are. Of equals the first come first;
    numbers with one quantized value count as equal. I is int64 and not quantized.
    """

    op_type = "TopK"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Copies integers, so Y has the input's qparams."""
        if not node.attributes.get_int("sorted", 1):
            return op.Float.because(
                "sorted is 0, which leaves the order of its results to the runtime"
            )
        return op.Rule(op.OpCategory.MOVEMENT, shares_qparams=True, lowered=True, shrinks=True)

    def cases(self) -> Iterable[op.Case]:
        x, ties = normal(3, 7, 4), np.round(normal(4, 9))
        yield op.Case("largest", (x, ints(3)), (1,), outputs=2)
        yield op.Case("smallest, axis", (x, ints(2)), (1,), {"axis": 1, "largest": 0}, outputs=2)
        yield op.Case("ties", (ties, ints(6)), (1,), outputs=2)
        yield op.Case("ties, smallest", (ties, ints(6)), (1,), {"largest": 0}, outputs=2)
        yield op.Case("all, k computed at run time", (ties, ints(9)), (), outputs=2)
        yield op.Case("none", (ties, ints(0)), (1,), outputs=2)
        yield op.Case("opset 13", (x, ints(1)), (1,), {"axis": -2}, outputs=2, opset=13)
        yield op.Case("empty batch", (x[:0], ints(2)), (1,), outputs=2)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.on_integers()

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        """Integers of Y, and I. Raises ShapeError where shapes, k, dtypes or qparams do not fit."""
        x, k = call.integers(0), call.plain(1)
        call.shared()
        axis = call.integer("axis", -1)
        if k.size != 1 or not -x.ndim <= axis < x.ndim or not 0 <= k.item() <= x.shape[axis]:
            raise call.shape_error(
                f"k {k.tolist()} along axis {axis} of {x.shape}; wanted one number, at most the "
                "size of an axis of x."
            )
        ascending = ~x if call.integer("largest", 1) else x  # ~ turns the order of integers
        with call.shape_errors():
            order = np.argsort(ascending, axis=axis, kind="stable")
            places = np.take(order, np.arange(k.item()), axis)
            return np.take_along_axis(x, places, axis), places
