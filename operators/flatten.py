"""All axes as two."""

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
class Flatten(Operator):
    """Y[i, j] = X with the axes before `axis` as rows, the others as columns; ONNX Flatten-13."""

    op_type = "Flatten"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4),))
        yield Case("axis 0", (normal(2, 3, 4),), (), {"axis": 0})
        yield Case("negative axis", (normal(2, 3, 4),), (), {"axis": -1})
        yield Case("axis behind the last", (normal(2, 3),), (), {"axis": 2})
        yield Case("empty batch", (normal(0, 3, 4),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Flatten on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        axis = call.integer("axis", 1)
        if not -x.ndim <= axis <= x.ndim:
            raise ShapeError(f"Flatten: axis {axis} is outside x of shape {x.shape}.")
        axis += x.ndim if axis < 0 else 0
        return (x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))),)
