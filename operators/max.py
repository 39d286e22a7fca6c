"""Element-wise maximum."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ShapeError
from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    Float,
    Form,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)
from onnxq.operators._check import codes, shape_errors, shared
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import normal
from onnxq.operators._nodes import infinite_operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Max(Operator):
    """Y = the larger of all operands, element by element, with broadcasting; ONNX Max-13.

    Where operands share qparams, codes are ordered as the numbers are.
    """

    op_type = "Max"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Selects codes, so operands and result have the same qparams."""
        slots = tuple(range(len(node.inputs)))
        return infinite_operand(node, slots) or Rule(
            Role.MOVEMENT, activations=slots, shares_qparams=True, form=Form.CODES
        )

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(2, 3, 4)
        yield Case("two", (x, normal(2, 3, 4, seed=1)))
        yield Case("constant", (x, np.array(0.25, np.float32)), (1,))
        yield Case("three", (x, normal(3, 1, seed=1), normal(4, seed=2)))
        yield Case("one", (x,))
        yield Case("empty batch", (normal(0, 3), normal(3, seed=1)), (1,))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Max on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        if not inputs:
            raise ShapeError("Max: it has no inputs; wanted at least one.")
        operands = [codes("Max", inputs, plan, slot) for slot in range(len(inputs))]
        shared("Max", plan, range(len(inputs)))
        with shape_errors("Max"):
            return (np.asarray(functools.reduce(np.maximum, operands)),)
