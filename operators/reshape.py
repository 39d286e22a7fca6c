"""The same elements in another shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from onnxq.operators._check import codes, shape_errors, shared, vector
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import ints, normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Reshape(Operator):
    """Y = X with shape S; ONNX Reshape-14.

    A 0 in S keeps that size of X (unless allowzero is set), -1 is what is left.
    """

    op_type = "Reshape"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("flat", (normal(2, 3, 4), ints(-1)), (1,))
        yield Case("kept and inferred sizes", (normal(2, 3, 4), ints(0, -1)), (1,))
        yield Case("shape computed at run time", (normal(2, 6), ints(3, 4)))
        yield Case("allowzero", (normal(0, 3), ints(3, 0)), (1,), {"allowzero": 1})
        yield Case("empty batch", (normal(0, 3, 4), ints(0, 12)), (1,))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Reshape on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Reshape", inputs, plan, 0)
        shared("Reshape", plan)
        wanted = vector("Reshape", inputs, 1)
        with shape_errors("Reshape"):
            if not integer(attributes, "allowzero", 0):
                wanted = [x.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
            return (x.reshape(wanted),)
