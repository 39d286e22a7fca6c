"""Axes of size 1 taken away."""

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
from onnxq.operators._check import codes, optional_vector, shape_errors, shared
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import ints, normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Squeeze(Operator):
    """Y = X without the given axes of size 1, or without all of them; ONNX Squeeze-13."""

    op_type = "Squeeze"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("one axis", (normal(2, 1, 3, 1), ints(1)), (1,))
        yield Case("negative axes", (normal(2, 1, 3, 1), ints(-1, -3)), (1,))
        yield Case("all axes", (normal(2, 1, 3, 1),))
        yield Case("empty batch", (normal(0, 1, 3), ints(1)), (1,))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Squeeze on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Squeeze", inputs, plan, 0)
        shared("Squeeze", plan)
        axes = optional_vector("Squeeze", inputs, 1)
        with shape_errors("Squeeze"):
            return (np.squeeze(x, None if axes is None else tuple(axes)),)
