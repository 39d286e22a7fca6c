"""Place of the largest element."""

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
class ArgMax(Operator):
    """Y = index of the maximum of X along `axis`; ONNX ArgMax-13.

    Of equals, the first or (select_last_index) the last.
    The result is int64 and not quantized. Numbers that share a code count as equal.
    """

    op_type = "ArgMax"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Reads codes; the result is an index, which has no qparams."""
        return Rule(Role.MOVEMENT, outputs=(), shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(3, 4)
        yield Case("plain", (x,), (), {"axis": 1})
        yield Case("axis dropped", (x,), (), {"axis": -1, "keepdims": 0})
        yield Case("ties", (np.ones((2, 3), np.float32),), (), {"axis": 1})
        yield Case(
            "last of ties", (np.ones((2, 3), np.float32),), (), {"axis": 1, "select_last_index": 1}
        )
        yield Case("empty batch", (normal(0, 3),), (), {"axis": 1})

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """ArgMax on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        axis = call.axis("axis", 0, x.ndim)
        keep = bool(call.integer("keepdims", 1))
        with call.shape_errors():
            if not call.integer("select_last_index", 0):
                return (np.argmax(x, axis, keepdims=keep),)
            last = x.shape[axis] - 1
            return (last - np.argmax(np.flip(x, axis), axis, keepdims=keep),)
