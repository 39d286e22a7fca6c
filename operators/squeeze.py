"""Axes of size 1 taken away."""

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
class Squeeze(Operator):
    """Y = X without the given axes of size 1, or without all of them; ONNX Squeeze-13."""

    op_type = "Squeeze"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("one axis", (normal(2, 1, 3, 1), ints(1)), (1,))
        yield Case("negative axes", (normal(2, 1, 3, 1), ints(-1, -3)), (1,))
        yield Case("all axes", (normal(2, 1, 3, 1),))
        yield Case("empty batch", (normal(0, 1, 3), ints(1)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Squeeze on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        axes = call.optional_vector(1)
        with call.shape_errors():
            return (np.squeeze(x, None if axes is None else tuple(axes)),)
