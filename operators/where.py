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
from onnxq.operators._check import plain, qparams_in, qparams_out, shape_errors
from onnxq.operators._emit import (
    MICROSOFT,
    check_same_type,
    emit,
    on_codes,
    scale_and_zero_point,
)
from onnxq.operators._examples import normal
from onnxq.operators._nodes import infinite_operand
from onnxq.operators._tables import recoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Where(Operator):
    """Z = X where the condition holds, else Y; all broadcast; ONNX Where-16.

    Integers: Where of codes; where qparams differ, com.microsoft QLinearWhere, which first takes
    both operands through a table, quantize(dequantize(x)) by the qparams of Z.
    """

    op_type = "Where"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Selects codes, so operands and result should have the same qparams; else rescaled."""
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
        """Where on codes, or QLinearWhere where they have different qparams."""
        if plan.inputs[1] == plan.inputs[2] == plan.outputs[0]:
            return on_codes(tape, node, plan, inputs)
        check_same_type(node, plan)
        slots = [inputs[0]]
        for i in (1, 2):
            parameters = scale_and_zero_point(tape, node, f"in{i}", qparams_in("Where", plan, i))
            slots += [inputs[i], *parameters]
        slots += scale_and_zero_point(tape, node, "out0", qparams_out("Where", plan))
        return emit(
            tape, node, plan, slots, op_type="QLinearWhere", domain=MICROSOFT, attributes={}
        )

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        condition = plain("Where", inputs, 0)
        out = qparams_out("Where", plan)
        x, y = (recoded("Where", inputs, plan, slot, out) for slot in (1, 2))
        if condition.dtype != np.bool_:
            raise ShapeError(f"Where: the condition has dtype {condition.dtype}; wanted bool.")
        with shape_errors("Where"):
            return (np.where(condition, x, y),)
