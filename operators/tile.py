"""Copies side by side."""

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
from onnxq.operator.examples import ints, normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class Tile(Operator):
    """Y = X repeated repeats[i] times along axis i; ONNX Tile-13."""

    op_type = "Tile"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3), ints(2, 3)), (1,))
        yield Case("no copies", (normal(2, 3), ints(0, 1)), (1,))
        yield Case("repeats computed at run time", (normal(2, 3), ints(1, 2)))
        yield Case("empty batch", (normal(0, 3), ints(1, 2)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Tile on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        repeats = call.vector(1)
        if len(repeats) != x.ndim or min(repeats, default=0) < 0:
            raise ShapeError(
                f"Tile: repeats {repeats} for x of shape {x.shape}; wanted one per axis, from 0."
            )
        return (np.tile(x, repeats),)
