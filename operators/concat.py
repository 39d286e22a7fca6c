"""Tensors side by side."""

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
from onnxq.operators._attributes import integer
from onnxq.operators._check import qparams_in, qparams_out, shape_errors
from onnxq.operators._emit import (
    MICROSOFT,
    attributes_of,
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
class Concat(Operator):
    """Y = X_0, X_1, ... along `axis`; ONNX Concat-13.

    Integers: codes side by side; where qparams differ, com.microsoft QLinearConcat, which first
    takes each part through a table, quantize(dequantize(x)) by the qparams of Y.
    """

    op_type = "Concat"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so parts and result should have the same qparams; others are rescaled."""
        slots = tuple(range(len(node.inputs)))
        return infinite_operand(node, slots) or Rule(
            Role.MOVEMENT, activations=slots, shares_qparams=True
        )

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("two", (normal(2, 3), normal(2, 4, seed=1)), (), {"axis": 1})
        yield Case(
            "three, negative axis", (normal(2, 1), normal(2, 2), normal(2, 3)), (), {"axis": -1}
        )
        yield Case("constant", (normal(2, 3), normal(2, 4, seed=1)), (1,), {"axis": 1})
        yield Case("one", (normal(2, 3),), (), {"axis": 0})
        yield Case("empty batch", (normal(0, 3), normal(0, 2)), (), {"axis": 1})

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Concat on codes, or QLinearConcat where they have different qparams."""
        if all(qparams == plan.outputs[0] for qparams in plan.inputs):
            return on_codes(tape, node, plan, inputs)
        check_same_type(node, plan)
        slots: list[ir.Value | None] = []
        slots += scale_and_zero_point(tape, node, "out0", qparams_out("Concat", plan))
        for i, value in enumerate(inputs):
            parameters = scale_and_zero_point(tape, node, f"in{i}", qparams_in("Concat", plan, i))
            slots += [value, *parameters]
        attributes = attributes_of(node)
        return emit(
            tape,
            node,
            plan,
            slots,
            op_type="QLinearConcat",
            domain=MICROSOFT,
            attributes=attributes,
        )

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        out = qparams_out("Concat", plan)
        parts = [recoded("Concat", inputs, plan, slot, out) for slot in range(len(inputs))]
        with shape_errors("Concat"):
            return (np.concatenate(parts, integer(attributes, "axis", 0)),)
