"""Rectifier with a slope below 0."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operators._tables import look_up, table_of


@op.register
class LeakyRelu(op.Operator):
    """Y = X where X >= 0, else alpha * X; ONNX LeakyRelu-16.

    Integers: com.microsoft QLinearLeakyRelu, a table of quantize(f(dequantize(x))).
    """

    op_type = "LeakyRelu"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise; the result is observed."""
        return op.Rule(op.OpCategory.ELEMENTWISE)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling the input by s > 0 scales the result by s."""
        return ({0: scale},)

    def cases(self) -> Iterable[op.Case]:
        yield op.Case("plain", (normal(2, 3, 4),))
        yield op.Case("alpha", (normal(2, 3, 4),), (), {"alpha": 0.3})
        yield op.Case("empty batch", (normal(0, 3),))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.qlinear("QLinearLeakyRelu", site.attributes("alpha"))

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        p, q = call.qparams_in(0), call.qparams_out()
        alpha = np.float32(call.real("alpha", 0.01))
        table = table_of(lambda reals: np.where(reals >= 0, reals, reals * alpha), p, q)
        return (look_up(table, x, p.dtype),)
