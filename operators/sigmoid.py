"""Logistic function."""

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
from onnxq.operators._check import codes, qparams_in, qparams_out
from onnxq.operators._emit import qlinear
from onnxq.operators._examples import normal
from onnxq.operators._logistic import logistic
from onnxq.operators._tables import look_up, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Sigmoid(Operator):
    """Y = 1 / (1 + exp(-X)); ONNX Sigmoid-13.

    Integers: com.microsoft QLinearSigmoid, a table of quantize(f(dequantize(x))), f as ONNX Runtime
    computes it in float32.
    """

    op_type = "Sigmoid"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, with results in [0, 1] whatever the data."""
        return Rule(Role.ELEMENTWISE, output_range=(0.0, 1.0))

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """QLinearSigmoid."""
        return qlinear(tape, node, plan, inputs, "QLinearSigmoid", {})

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Sigmoid", inputs, plan, 0)
        p, q = qparams_in("Sigmoid", plan, 0), qparams_out("Sigmoid", plan)
        return (look_up(table_of(logistic, p, q), x, p.dtype),)

    def float_kernel(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """float32, equal to ONNX Runtime's bit for bit."""
        return (logistic(np.asarray(inputs[0], np.float32)),)
