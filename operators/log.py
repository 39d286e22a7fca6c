"""Natural logarithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
from onnxq.operators._around import lower_function, table_kernel
from onnxq.operators._examples import normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Log(Operator):
    """Y = ln(X); ONNX Log-13.

    The code of 0 gives -infinity, those of numbers below 0 give NaN; both have the lowest code.

    Measured in an int8 network, ns per element: DequantizeLinear, it and QuantizeLinear 1.57,
    a table .69. So integers are a table: the function in float64, rounded once.
    """

    op_type = "Log"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Element-wise, by table; the result is observed."""
        return Rule(Role.ELEMENTWISE, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = np.abs(normal(2, 3, 4)) + np.float32(0.5)
        yield Case("plain", (x,))
        yield Case("small and large", (x**9,))
        yield Case("rank 0", (np.array(0.7, np.float32),))
        yield Case("empty batch", (x[:0],))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """A table that GatherElements reads."""
        return lower_function(tape, node, plan, inputs, np.log)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel("Log", inputs, plan, np.log),)
