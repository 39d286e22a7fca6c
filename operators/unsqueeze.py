"""Axes of size 1 put in."""

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
class Unsqueeze(Operator):
    """Y = X with axes of size 1 at the given places of Y; ONNX Unsqueeze-13."""

    op_type = "Unsqueeze"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("two axes", (normal(2, 3), ints(0, 3)), (1,))
        yield Case("negative axis", (normal(2, 3), ints(-1)), (1,))
        yield Case("rank 0", (normal(), ints(0)), (1,))
        yield Case("empty batch", (normal(0, 3), ints(1)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Unsqueeze on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        axes = tuple(call.vector(1))
        with call.shape_errors():
            return (np.expand_dims(x, axes),)
