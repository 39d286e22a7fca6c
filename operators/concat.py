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
from onnxq.operators._check import codes, shape_errors, shared
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import normal
from onnxq.operators._nodes import infinite_operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Concat(Operator):
    """Y = X_0, X_1, ... along `axis`; ONNX Concat-13."""

    op_type = "Concat"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so all parts and the result have the same qparams."""
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
        """Concat on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        parts = [codes("Concat", inputs, plan, slot) for slot in range(len(inputs))]
        shared("Concat", plan, range(len(inputs)))
        with shape_errors("Concat"):
            return (np.concatenate(parts, integer(attributes, "axis", 0)),)
