"""One of two, by a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ShapeError
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
from onnxq.operators._check import codes, plain, shape_errors, shared
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import normal
from onnxq.operators._nodes import infinite_operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Where(Operator):
    """Z = X where the condition holds, else Y; all broadcast; ONNX Where-16."""

    op_type = "Where"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Selects codes, so both operands and the result have the same qparams."""
        return infinite_operand(node, (1, 2)) or Rule(
            Role.MOVEMENT, activations=(1, 2), shares_qparams=True
        )

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(3, 4)
        mask = x > 0
        yield Case("plain", (mask, x, normal(3, 4, seed=1)))
        yield Case("constant mask and value", (mask, x, np.array(0.5, np.float32)), (0, 2))
        yield Case("broadcast", (mask[:, :1], x, normal(4, seed=1)))
        yield Case("empty batch", (mask[:0], x[:0], normal(4)))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Where on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        condition = plain("Where", inputs, 0)
        x, y = codes("Where", inputs, plan, 1), codes("Where", inputs, plan, 2)
        shared("Where", plan, (1, 2))
        if condition.dtype != np.bool_:
            raise ShapeError(f"Where: the condition has dtype {condition.dtype}; wanted bool.")
        with shape_errors("Where"):
            return (np.where(condition, x, y),)
