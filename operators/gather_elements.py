"""Elements picked by index along one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ShapeError
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
class GatherElements(Operator):
    """Y[i, j, k] = X[i, indices[i, j, k], k] for axis 1 of 3; ONNX GatherElements-13."""

    op_type = "GatherElements"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(3, 4)
        yield Case("plain", (x, np.array([[0, 1, -1], [2, 0, 0]])), (1,), {"axis": 1})
        yield Case("rows", (x, np.array([[0, 1, 2, 1]])), (1,))
        yield Case("empty batch", (x, np.zeros((0, 4), np.int64)))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """GatherElements on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        indices, axis = call.plain(1), call.integer("axis", 0)
        if indices.ndim != x.ndim or not -x.ndim <= axis < x.ndim:
            raise ShapeError(f"GatherElements: x {x.shape}, indices {indices.shape}, axis {axis}.")
        keep = [slice(n) for n in indices.shape]  # ONNX lets the other axes of indices be shorter
        keep[axis] = slice(None)
        with call.shape_errors():
            return (np.take_along_axis(x[tuple(keep)], indices.astype(np.intp), axis),)
