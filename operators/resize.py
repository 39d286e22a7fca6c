"""Another resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import (
    Case,
    Float,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import ints, normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class Resize(Operator):
    """Y[p] = X[round(p / scale)]; ONNX Resize-19.

    Nearest elements, in any of ONNX's coordinate and rounding modes.
    """

    op_type = "Resize"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes; interpolation is left float."""
        mode = node.attributes.get_string("mode", "nearest")
        if mode != "nearest":
            return Float(f"mode {mode}: ONNX Runtime truncates where float interpolation rounds")
        if node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize":
            return Float("tf_crop_and_resize puts in a value of its own outside the image")
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """Scales, sizes, other rounding."""
        x = normal(2, 3, 4, 5)
        scales = np.array([1, 1, 2, 1.5], np.float32)
        yield Case("scales", (x, None, scales), (2,))
        yield Case("sizes", (x, None, None, ints(2, 3, 6, 4)), (3,))
        yield Case(
            "asymmetric, floor",
            (x, None, scales),
            (2,),
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        )

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Resize on codes."""
        return on_codes(tape, node, plan, inputs)
