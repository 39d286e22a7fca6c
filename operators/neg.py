"""Sign change."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from onnxq.operators._around import lower_around
from onnxq.operators._examples import normal
from onnxq.operators._number import lower_with_number, number_kernel
from onnxq.operators._tables import is_tabulable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Neg(Operator):
    """Y = -X; ONNX Neg-13.

    Integers: com.microsoft QLinearMul of X and -1, a code with the scale 1: exact where the result
    has the mirrored qparams of X, else rounded once.
    Measured in an int8 network, ns per element: DequantizeLinear, Neg and QuantizeLinear .23,
    QLinearMul .16. So it is that one node.
    """

    op_type = "Neg"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by QLinearMul; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """QLinearMul by -1; wide codes: around float."""
        if not is_tabulable(plan):
            return lower_around(tape, node, plan, inputs)
        return lower_with_number(tape, node, plan, inputs[0], "QLinearMul", -1.0)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        return (number_kernel("Neg", inputs, plan, "QLinearMul", -1.0),)
