"""Broadcast to a shape."""

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
from onnxq.operators._check import codes, shape_errors, shared, vector
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import ints, normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Expand(Operator):
    """Y = X broadcast with a tensor of shape S, both ways; ONNX Expand-13."""

    op_type = "Expand"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(3, 1), ints(2, 3, 4)), (1,))
        yield Case("shape with ones", (normal(3, 4), ints(1, 1)), (1,))
        yield Case("rank 0", (normal(), ints(2, 2)), (1,))
        yield Case("empty batch", (normal(0, 1), ints(1, 3)), (1,))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Expand on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Expand", inputs, plan, 0)
        shared("Expand", plan)
        wanted = vector("Expand", inputs, 1)
        with shape_errors("Expand"):
            return (np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(wanted))).copy(),)
