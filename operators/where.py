"""One of two, by a condition."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.operator import Array, Call, Case, Float, OpCategory, Operator, Rule, Site, register
from onnxq.operator.examples import normal
from onnxq.operator.nodes import infinite_operand
from onnxq.operator.site import MICROSOFT
from onnxq.operators._tables import requantized


@register
class Where(Operator):
    """Z = X where the condition holds, else Y; all broadcast; ONNX Where-16.

    Integers: Where of integers; where qparams differ, com.microsoft QLinearWhere, which first takes
    both operands through a table, quantize(dequantize(x)) by the qparams of Z.
    """

    op_type = "Where"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Selects integers, so operands and result should have the same qparams; else rescaled."""
        return infinite_operand(node, (1, 2)) or Rule(
            OpCategory.MOVEMENT, activations=(1, 2), shares_qparams=True
        )

    def cases(self) -> Iterable[Case]:
        x = normal(3, 4)
        mask = x > 0
        yield Case("plain", (mask, x, normal(3, 4, seed=1)))
        yield Case("constant mask and value", (mask, x, np.array(0.5, np.float32)), (0, 2))
        yield Case("broadcast", (mask[:, :1], x, normal(4, seed=1)))
        yield Case("empty batch", (mask[:0], x[:0], normal(4)))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Where on integers, or QLinearWhere where they have different qparams."""
        if site.plan.inputs[1] == site.plan.inputs[2] == site.plan.outputs[0]:
            return site.on_integers()
        site.check_same_type()
        slots = [site.inputs[0]]
        for i in (1, 2):
            parameters = site.scale_and_zero_point(f"in{i}", site.qparams_in(i))
            slots += [site.inputs[i], *parameters]
        slots += site.scale_and_zero_point("out0", site.qparams_out())
        return site.emit(slots, op_type="QLinearWhere", domain=MICROSOFT, attributes={})

    def kernel(self, call: Call) -> tuple[Array, ...]:
        condition = call.plain(0)
        out = call.qparams_out()
        x, y = (requantized(call, slot, out) for slot in (1, 2))
        if condition.dtype != np.bool_:
            raise call.shape_error(f"the condition has dtype {condition.dtype}; wanted bool.")
        with call.shape_errors():
            return (np.where(condition, x, y),)
