"""Sum along axes."""

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
from onnxq.operators._check import codes, optional_vector, qparams_in, qparams_out
from onnxq.operators._examples import ints, normal
from onnxq.operators._reduce import NOT_KNOWN, axes_of, axes_of_node
from onnxq.operators._sums import sum_over
from onnxq.qparams import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class ReduceSum(Operator):
    """Y = sum of X over the given axes, or over all; ONNX ReduceSum-13.

    ONNX Runtime has no integer kernel: it sums what the codes stand for in float32, in an order
    that depends on the shape. The kernel here has the order of x86, where it is exact; that matters
    where sums lie on ties, as they do when the scales are in a simple ratio.
    """

    op_type = "ReduceSum"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Computed in float32, along axes that are known."""
        found = axes_of_node(node)
        return NOT_KNOWN if found is None else Rule(Role.ELEMENTWISE, form=Form.FLOAT)

    def cases(self) -> Iterable[Case]:
        """Axes by input, attribute or not at all; dropped; no rows."""
        x = normal(2, 30, 4)
        yield Case("last", (x, ints(-1)), (1,))
        yield Case("two, dropped", (x, ints(0, 1)), (1,), {"keepdims": 0})
        yield Case("all axes", (x,))
        yield Case("none", (x, ints()), (1,), {"noop_with_empty_axes": 1})
        yield Case("opset 13", (x, ints(1)), (1,), opset=13)
        yield Case("empty batch", (x[:0], ints(1)), (1,))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """DequantizeLinear, ReduceSum, QuantizeLinear."""
        return lower_around(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where axes, dtypes or qparams do not fit."""
        x = codes("ReduceSum", inputs, plan, 0)
        p, q = qparams_in("ReduceSum", plan, 0), qparams_out("ReduceSum", plan)
        axes = axes_of("ReduceSum", x.ndim, optional_vector("ReduceSum", inputs, 1), attributes)
        return (quantize(sum_over(dequantize(x, p), axes, attributes), q),)
