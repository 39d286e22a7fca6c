"""Slices picked by tuples of indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ShapeError
from onnxq.operator import (
    Array,
    Call,
    Case,
    Float,
    Form,
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
class GatherND(Operator):
    """Y[b, i] = X[b, indices[b, i, 0], indices[b, i, 1], ...]; ONNX GatherND-13.

    b runs over batch_dims axes, i over the others of indices but the last.
    """

    op_type = "GatherND"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(3, 4, 5)
        yield Case("elements", (x, np.array([[0, 1, 2], [2, -1, 0]])), (1,))
        yield Case("slices", (x, np.array([[[0, 1]], [[2, 3]]])), (1,))
        yield Case("batch_dims", (x, np.array([[1], [0], [-1]])), (1,), {"batch_dims": 1})
        yield Case("empty batch", (x, np.zeros((0, 2), np.int64)))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """GatherND on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        indices, batch = call.plain(1), call.integer("batch_dims", 0)
        lead, depth = indices.shape[:batch], indices.shape[-1] if indices.ndim else 0
        if not indices.ndim or x.shape[:batch] != lead or batch + depth > x.ndim:
            raise ShapeError(f"GatherND: x {x.shape}, indices {indices.shape}, batch_dims {batch}.")
        batches = np.indices((*lead, *indices.shape[batch:-1]))[:batch]
        with call.shape_errors():
            return (x[(*batches, *np.moveaxis(indices.astype(np.intp), -1, 0))],)
