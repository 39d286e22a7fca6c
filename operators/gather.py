"""Slices picked by index."""

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
from onnxq.operators._check import codes, plain, shape_errors, shared
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import ints, normal
from onnxq.operators._nodes import infinite_operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Gather(Operator):
    """Y = X[..., indices, ...] along `axis`; ONNX Gather-13."""

    op_type = "Gather"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return infinite_operand(node, (0,)) or Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(5, 4)
        yield Case("rows", (x, np.array([[0, 4], [-1, 2]])), (1,))
        yield Case("columns", (x, ints(1, 1, 3)), (1,), {"axis": 1})
        yield Case("scalar index", (x, np.array(2)), (1,))
        yield Case("constant table", (x, ints(0, 3)), (0,))
        yield Case("empty batch", (x, np.zeros((0, 2), np.int64)))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Gather on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Gather", inputs, plan, 0)
        shared("Gather", plan)
        indices = plain("Gather", inputs, 1)
        with shape_errors("Gather"):
            return (np.take(x, indices.astype(np.intp), integer(attributes, "axis", 0)),)
