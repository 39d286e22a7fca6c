"""Rectifier with a slope below 0."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
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
from onnxq.operators._tables import look_up, table_of


@register
class LeakyRelu(Operator):
    """Y = X where X >= 0, else alpha * X; ONNX LeakyRelu-16.

    Integers: com.microsoft QLinearLeakyRelu, a table of quantize(f(dequantize(x))).
    """

    op_type = "LeakyRelu"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise; the result is observed."""
        return Rule(OpCategory.ELEMENTWISE)

    def scaled(self, node: ir.Node, scale: Reals) -> tuple[Mapping[int, Reals], ...]:
        """Scaling the input by s > 0 scales the result by s."""
        return ({0: scale},)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("alpha", (normal(2, 3, 4),), (), {"alpha": 0.3})
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """QLinearLeakyRelu."""
        return site.qlinear("QLinearLeakyRelu", site.attributes("alpha"))

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Integers of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.integers(0)
        p, q = call.qparams_in(0), call.qparams_out()
        alpha = np.float32(call.real("alpha", 0.01))
        table = table_of(lambda reals: np.where(reals >= 0, reals, reals * alpha), p, q)
        return (look_up(table, x, p.dtype),)
