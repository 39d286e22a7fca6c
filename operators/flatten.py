"""All axes as two."""

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
from onnxq.operators._attributes import integer
from onnxq.operators._check import codes, shared
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Flatten(Operator):
    """Y[i, j] = X with the axes before `axis` as rows, the others as columns; ONNX Flatten-13."""

    op_type = "Flatten"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("axis 0", (normal(2, 3, 4),), (), {"axis": 0})
        yield Case("negative axis", (normal(2, 3, 4),), (), {"axis": -1})
        yield Case("axis behind the last", (normal(2, 3),), (), {"axis": 2})
        yield Case("empty batch", (normal(0, 3, 4),))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Flatten on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Flatten", inputs, plan, 0)
        shared("Flatten", plan)
        axis = integer(attributes, "axis", 1)
        if not -x.ndim <= axis <= x.ndim:
            raise ShapeError(f"Flatten: axis {axis} is outside x of shape {x.shape}.")
        axis += x.ndim if axis < 0 else 0
        return (x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))),)
