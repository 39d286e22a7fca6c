"""Copies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ShapeError
from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    Float,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)
from onnxq.operators._check import codes, shared, vector
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import ints, normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


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

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Tile on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Tile", inputs, plan, 0)
        shared("Tile", plan)
        repeats = vector("Tile", inputs, 1)
        if len(repeats) != x.ndim or min(repeats, default=0) < 0:
            raise ShapeError(
                f"Tile: repeats {repeats} for x of shape {x.shape}; wanted one per axis, from 0."
            )
        return (np.tile(x, repeats),)
