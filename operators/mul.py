"""Element-wise product."""

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
from onnxq.operators._check import codes, qparams_in, qparams_out
from onnxq.operators._emit import qlinear
from onnxq.operators._examples import normal
from onnxq.operators._nodes import infinite_operand
from onnxq.operators._tables import Codes, look_up_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape

    from onnxq.qparams import IntArray, QParams


@register
class Mul(Operator):
    """C = A * B with broadcasting; ONNX Mul-14.

    Integers: com.microsoft QLinearMul,
    saturate(rint(float32((a - a_zp) (b - b_zp)) * (a_scale * b_scale / c_scale) + c_zp)): the zero
    point is added before rounding here.
    """

    op_type = "Mul"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Both operands are activations; a constant one is quantized per tensor."""
        return infinite_operand(node, (0, 1)) or Rule(Role.ELEMENTWISE, activations=(0, 1))

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(2, 3, 4)
        yield Case("same shape", (x, normal(2, 3, 4, seed=1)))
        yield Case("constant vector", (x, normal(4, seed=1)), (1,))
        yield Case("channels", (normal(3, 1, seed=1), x))
        yield Case("scalar", (x, np.array(0.3, np.float32)), (1,))
        yield Case("empty batch", (normal(0, 3), normal(3, seed=1)), (1,))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """QLinearMul."""
        return qlinear(tape, node, plan, inputs, "QLinearMul", {})

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        a, b = codes("Mul", inputs, plan, 0), codes("Mul", inputs, plan, 1)
        p, q, out = qparams_in("Mul", plan, 0), qparams_in("Mul", plan, 1), qparams_out("Mul", plan)

        def product(first: Codes, second: Codes) -> IntArray:
            return multiply_codes(first, second, p, q, out)

        return (look_up_pairs("Mul", product, (a, p.dtype), (b, q.dtype)),)


def multiply_codes(a: Codes, b: Codes, p: QParams, q: QParams, out: QParams) -> IntArray:
    """QLinearMul's arithmetic on broadcasting int32 arrays; p, q, out: qparams of a, b, result."""
    products = (a - p.zero_point.astype(np.int32)) * (b - q.zero_point.astype(np.int32))
    value = products.astype(np.float32) * (p.scale * q.scale / out.scale)
    value = np.rint(value + out.zero_point.astype(np.float32))
    return np.asarray(np.clip(value, out.dtype.qmin, out.dtype.qmax).astype(out.dtype.storage))
