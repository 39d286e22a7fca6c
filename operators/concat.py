"""Tensors side by side."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.operator import Array, Call, Case, Float, OpCategory, Operator, Rule, Site, register
from onnxq.operator.examples import normal
from onnxq.operator.nodes import infinite_operand
from onnxq.operator.site import MICROSOFT
from onnxq.operators._tables import requantized


@register
class Concat(Operator):
    """Y = X_0, X_1, ... along `axis`; ONNX Concat-13.

    Integers: integers side by side; where qparams differ, com.microsoft QLinearConcat, which first
    takes each part through a table, quantize(dequantize(x)) by the qparams of Y.
    """

    op_type = "Concat"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies integers; parts whose qparams are not the result's are rescaled."""
        slots = tuple(range(len(node.inputs)))
        return infinite_operand(node, slots) or Rule(
            OpCategory.MOVEMENT, activations=slots, shares_qparams=True
        )

    def cases(self) -> Iterable[Case]:
        yield Case("two", (normal(2, 3), normal(2, 4, seed=1)), (), {"axis": 1})
        yield Case(
            "three, negative axis", (normal(2, 1), normal(2, 2), normal(2, 3)), (), {"axis": -1}
        )
        yield Case("constant", (normal(2, 3), normal(2, 4, seed=1)), (1,), {"axis": 1})
        yield Case("one", (normal(2, 3),), (), {"axis": 0})
        yield Case("empty batch", (normal(0, 3), normal(0, 2)), (), {"axis": 1})

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Concat on integers, or QLinearConcat where they have different qparams."""
        if all(qparams == site.plan.outputs[0] for qparams in site.plan.inputs):
            return site.on_integers()
        site.check_same_type()
        slots: list[ir.Value | None] = []
        slots += site.scale_and_zero_point("out0", site.qparams_out())
        for i, value in enumerate(site.inputs):
            parameters = site.scale_and_zero_point(f"in{i}", site.qparams_in(i))
            slots += [value, *parameters]
        attributes = site.attributes()
        return site.emit(slots, op_type="QLinearConcat", domain=MICROSOFT, attributes=attributes)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        out = call.qparams_out()
        parts = [requantized(call, slot, out) for slot in range(len(call.inputs))]
        with call.shape_errors():
            return (np.concatenate(parts, call.integer("axis", 0)),)
