"""Broadcast to a shape."""

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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class Expand(Operator):
    """Y = X broadcast with a tensor of shape S, both ways; ONNX Expand-13."""

    op_type = "Expand"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(3, 1), ints(2, 3, 4)), (1,))
        yield Case("shape with ones", (normal(3, 4), ints(1, 1)), (1,))
        yield Case("rank 0", (normal(), ints(2, 2)), (1,))
        yield Case("empty batch", (normal(0, 1), ints(1, 3)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Expand on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        wanted = call.vector(1)
        with call.shape_errors():
            return (np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(wanted))).copy(),)
