"""Place of the largest element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
from onnxq.operators._attributes import integer
from onnxq.operators._check import axis_within, codes, shape_errors
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


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

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """ArgMax on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("ArgMax", inputs, plan, 0)
        axis = axis_within("ArgMax", integer(attributes, "axis", 0), x.ndim)
        keep = bool(integer(attributes, "keepdims", 1))
        with shape_errors("ArgMax"):
            if not integer(attributes, "select_last_index", 0):
                return (np.argmax(x, axis, keepdims=keep),)
            last = x.shape[axis] - 1
            return (last - np.argmax(np.flip(x, axis), axis, keepdims=keep),)
