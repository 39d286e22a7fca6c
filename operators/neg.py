"""Sign change."""

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnxq import operator as op
from onnxq.operators._function import anywhere, lower_around
from onnxq.operators._number import lower_with_number, number_kernel, product_agrees
from onnxq.operators._tables import is_tabulable


@op.register
class Neg(op.Operator):
    """Y = -X; ONNX Neg-13.

    Integers: com.microsoft QLinearMul of X and -1, with the scale 1: exact where the result has the
    mirrored qparams of X, else rounded once. Measured in an int8 network, ns per element:
    DequantizeLinear, Neg and QuantizeLinear .23, QLinearMul .16. So it is that one node.
    """

    op_type = "Neg"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise, by QLinearMul; the result is observed."""
        return op.Rule(op.OpCategory.ELEMENTWISE, lowered=True)

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """An error comes out as large as it is, negated."""
        return (op.Linear((0,), 1.0, sign=-1.0),)

    def cases(self) -> Iterable[op.Case]:
        yield from anywhere()

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearMul by -1; wide integers: around float."""
        if not is_tabulable(site.plan):
            return lower_around(site)
        return lower_with_number(site, site.inputs[0], "QLinearMul", -1.0)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        return (number_kernel(call, "QLinearMul", -1.0),)

    def agrees(self, call: op.Call) -> bool:
        """Whether every machine changes the sign of all integers alike."""
        return product_agrees(call, -1.0)
