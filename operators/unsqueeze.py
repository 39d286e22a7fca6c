"""Axes of size 1 put in."""

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
class Unsqueeze(Operator):
    """Y = X with axes of size 1 at the given places of Y; ONNX Unsqueeze-13."""

    op_type = "Unsqueeze"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("two axes", (normal(2, 3), ints(0, 3)), (1,))
        yield Case("negative axis", (normal(2, 3), ints(-1)), (1,))
        yield Case("rank 0", (normal(), ints(0)), (1,))
        yield Case("empty batch", (normal(0, 3), ints(1)), (1,))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Unsqueeze on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Unsqueeze", inputs, plan, 0)
        shared("Unsqueeze", plan)
        axes = tuple(vector("Unsqueeze", inputs, 1))
        with shape_errors("Unsqueeze"):
            return (np.expand_dims(x, axes),)
