"""Sign change."""

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    Linear,
    OpCategory,
    Operator,
    Response,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import normal
from onnxq.operators._function import lower_around
from onnxq.operators._number import lower_with_number, number_kernel, product_agrees
from onnxq.operators._tables import is_tabulable


@register
class Neg(Operator):
    """Y = -X; ONNX Neg-13.

    Integers: com.microsoft QLinearMul of X and -1, with the scale 1: exact where the result has the
    mirrored qparams of X, else rounded once. Measured in an int8 network, ns per element:
    DequantizeLinear, Neg and QuantizeLinear .23, QLinearMul .16. So it is that one node.
    """

    op_type = "Neg"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by QLinearMul; the result is observed."""
        return Rule(OpCategory.ELEMENTWISE, lowered=True)

    def responses(self, node: ir.Node) -> tuple[Response, ...]:
        """An error comes out as large as it is, negated."""
        return (Linear((0,), 1.0, sign=-1.0),)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("wide", (100 * normal(2, 3, 4),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """QLinearMul by -1; wide integers: around float."""
        if not is_tabulable(site.plan):
            return lower_around(site)
        return lower_with_number(site, site.inputs[0], "QLinearMul", -1.0)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Integers of Y. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        return (number_kernel(call, "QLinearMul", -1.0),)

    def agrees(self, call: Call) -> bool:
        """Whether every machine changes the sign of all integers alike."""
        return product_agrees(call, -1.0)
