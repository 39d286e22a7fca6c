"""Rectifier with a slope below 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    Float,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)
from onnxq.operators._attributes import real
from onnxq.operators._check import codes, qparams_in, qparams_out
from onnxq.operators._emit import attributes_of, qlinear
from onnxq.operators._examples import normal
from onnxq.operators._tables import look_up, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class LeakyRelu(Operator):
    """Y = X where X >= 0, else alpha * X; ONNX LeakyRelu-16.

    Integers: com.microsoft QLinearLeakyRelu, a table of quantize(f(dequantize(x))).
    """

    op_type = "LeakyRelu"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise; the result is observed."""
        return Rule(Role.ELEMENTWISE)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("alpha", (normal(2, 3, 4),), (), {"alpha": 0.3})
        yield Case("empty batch", (normal(0, 3),))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """QLinearLeakyRelu."""
        return qlinear(tape, node, plan, inputs, "QLinearLeakyRelu", attributes_of(node, "alpha"))

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("LeakyRelu", inputs, plan, 0)
        p, q = qparams_in("LeakyRelu", plan, 0), qparams_out("LeakyRelu", plan)
        alpha = np.float32(real(attributes, "alpha", 0.01))
        table = table_of(lambda reals: np.where(reals >= 0, reals, reals * alpha), p, q)
        return (look_up(table, x, p.dtype),)
