"""Element-wise difference."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.nodes import constant_operand, infinite_operand
from onnxq.operator.site import MICROSOFT
from onnxq.operators._channel_scales import on_operands
from onnxq.operators._function import lower_around
from onnxq.operators._number import as_integer
from onnxq.operators._tables import is_tabulable
from onnxq.operators.add import Add
from onnxq.qparams import QParams


@op.register
class Sub(op.Operator):
    """C = A - B with broadcasting; ONNX Sub-14.

    Integers: A + (-B) by com.microsoft QLinearAdd. The integers of -B are mirrored, qmin + qmax -
    b, with the mirrored zero point and the scale of B; QLinearMul by -1 does that exactly.
    Measured in an int8 network, ns per element: DequantizeLinear twice, Sub and QuantizeLinear .31,
    QLinearMul and QLinearAdd .18 (constants are mirrored when the model is loaded).
    """

    op_type = "Sub"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Both operands are activations; a constant one is quantized per tensor."""
        return infinite_operand(node, (0, 1)) or op.Rule(
            op.OpCategory.ELEMENTWISE, activations=(0, 1), lowered=True
        )

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """Errors of both operands stay as large, those of the second negated."""
        number = constant_operand(node)
        negated = None if number is None else -number
        return (op.Linear((0,), 1.0, negated), op.Linear((1,), 1.0, number, -1.0))

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling the result scales both operands alike."""
        both = on_operands(node, (0, 1), scale)
        return () if both is None else (both,)

    def cases(self) -> Iterable[op.Case]:
        return Add().cases()

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearMul by -1 and QLinearAdd; 16 bits: float between Q and DQ."""
        if not is_tabulable(site.plan):
            return lower_around(site)
        site.check_same_type()
        q = site.qparams_in(1)
        integer, minus_one = as_integer(-1.0, q.dtype)
        slots = [
            site.inputs[1],
            *site.scale_and_zero_point("b", q),
            site.initializer("minus_one", integer, q.dtype),
            *site.scale_and_zero_point("minus_one", minus_one),
            *site.scale_and_zero_point("mirrored", mirrored(q)),
        ]
        minus_b = site.tape.op(
            "QLinearMul", slots, domain=MICROSOFT, name=f"{site.node.name}_mirror"
        )
        pair = op.NodePlan((site.plan.inputs[0], mirrored(q)), site.plan.outputs)
        return replace(site, plan=pair, inputs=[site.inputs[0], minus_b]).qlinear("QLinearAdd", {})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        b, q = call.integers(1), call.qparams_in(1)
        minus_b = (q.dtype.qmin + q.dtype.qmax - b.astype(np.int32)).astype(q.dtype.storage)
        inputs = (call.integers(0), minus_b)
        return Add().kernel(replace(_as_sum(call), inputs=inputs, attributes={}))

    def agrees(self, call: op.Call) -> bool:
        """Whether all CPUs give the same integers for A - B."""
        return Add().agrees(_as_sum(call))

    def agrees_with_itself(self, call: op.Call) -> bool:
        """Whether A + (-B) equals (-B) + A in integers."""
        return Add().agrees_with_itself(_as_sum(call))


def _as_sum(call: op.Call) -> op.Call:
    """The call of Add for A and -B."""
    pair = op.NodePlan((call.plan.inputs[0], mirrored(call.qparams_in(1))), call.plan.outputs)
    return replace(call, plan=pair)


def mirrored(q: QParams) -> QParams:
    """The qparams of -B, whose integers are qmin + qmax - b."""
    return QParams(q.scale, q.dtype.qmin + q.dtype.qmax - q.zero_point.astype(np.int32), q.dtype)
