"""Axes in another order."""

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
from onnxq.operator.examples import normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class Transpose(Operator):
    """Y[i_perm[0], i_perm[1], ...] = X[i_0, i_1, ...]; ONNX Transpose-13.

    Without perm the axes are reversed.
    """

    op_type = "Transpose"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("reversed", (normal(2, 3, 4),))
        yield Case("permuted", (normal(2, 3, 4),), (), {"perm": [1, 2, 0]})
        yield Case("channels last", (normal(2, 3, 4, 5),), (), {"perm": [0, 2, 3, 1]})
        yield Case("empty batch", (normal(0, 3, 4),), (), {"perm": [0, 2, 1]})

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Transpose on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        order = call.integers("perm", range(x.ndim)[::-1])
        with call.shape_errors():
            return (np.ascontiguousarray(x.transpose(order)),)
