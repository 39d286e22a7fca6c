"""Smallest element along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    Operator,
    Role,
    Rule,
    Site,
    register,
)
from onnxq.operator.examples import ints, normal
from onnxq.operators._reduce import reduce_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class ReduceMin(Operator):
    """Y = min of X over the given axes, or over all; ONNX ReduceMin-20.

    Scales are positive, so codes are ordered as the numbers are.
    """

    op_type = "ReduceMin"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(2, 3, 4)
        yield Case("axes", (x, ints(0, -1)), (1,))
        yield Case("all axes", (x,))
        yield Case("no axes left", (x, ints()), (1,), {"noop_with_empty_axes": 1})
        yield Case("axes dropped", (x, ints(1)), (1,), {"keepdims": 0})
        yield Case("attribute of opset 13", (x,), (), {"axes": [1]}, opset=13)
        yield Case("empty batch", (normal(0, 3), ints(1)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """ReduceMin on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        with call.shape_errors():
            return (reduce_codes(call, x, np.minimum),)
