"""Sum along axes."""

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import dequantize, quantize
from onnxq.operator.examples import ints, normal
from onnxq.operators._function import lower_around
from onnxq.operators._reduce import axes_of, float_rule, summands
from onnxq.operators._sums import sum_over


@op.register
class ReduceSum(op.Operator):
    """Y = sum of X over the given axes, or over all; ONNX ReduceSum-13.

    ONNX Runtime has no integer kernel: it sums what the integers stand for in float32, in an order
    that depends on the shape. The kernel here has the order of x86, where it is exact; that matters
    where sums lie on ties, as they do when the scales are in a simple ratio.
    """

    op_type = "ReduceSum"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Computed in float32, along axes that are known."""
        return float_rule(node)

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """Errors of all summands; of an unknown number, at least that of one."""
        return (op.Summed(0, summands(node) or 1),)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 30, 4)
        yield op.Case("last", (x, ints(-1)), (1,))
        yield op.Case("two, dropped", (x, ints(0, 1)), (1,), {"keepdims": 0})
        yield op.Case("all axes", (x,))
        yield op.Case("none", (x, ints()), (1,), {"noop_with_empty_axes": 1})
        yield op.Case("opset 13", (x, ints(1)), (1,), opset=13)
        yield op.Case("empty batch", (x[:0], ints(1)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return lower_around(site)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        p, q = call.qparams_in(0), call.qparams_out()
        axes = axes_of(call, x.ndim, call.optional_vector(1))
        return (quantize(sum_over(call, dequantize(x, p), axes), q),)
