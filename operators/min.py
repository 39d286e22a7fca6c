"""Element-wise minimum."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ShapeError
from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    Form,
    Operator,
    Role,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import normal
from onnxq.operator.nodes import infinite_operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class Min(Operator):
    """Y = the smaller of all operands, element by element, with broadcasting; ONNX Min-13.

    Where operands share qparams, codes are ordered as the numbers are.
    """

    op_type = "Min"

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

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Min on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        if not call.inputs:
            raise ShapeError("Min: it has no inputs; wanted at least one.")
        operands = [call.codes(slot) for slot in range(len(call.inputs))]
        call.shared(range(len(call.inputs)))
        with call.shape_errors():
            return (np.asarray(functools.reduce(np.minimum, operands)),)
