"""Pixels to channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import ShapeError
from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    Float,
    Form,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)
from onnxq.operators._attributes import integer
from onnxq.operators._check import codes, shared
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape


@register
class SpaceToDepth(Operator):
    """Y[n, (i * b + j) * C + c, h, w] = X[n, c, h * b + i, w * b + j]; ONNX SpaceToDepth-13.

    b is the blocksize, C the channels of X.
    """

    op_type = "SpaceToDepth"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3, 4, 6),), (), {"blocksize": 2})
        yield Case("empty batch", (normal(0, 3, 4, 6),), (), {"blocksize": 2})

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """SpaceToDepth on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("SpaceToDepth", inputs, plan, 0)
        shared("SpaceToDepth", plan)
        block = integer(attributes, "blocksize", 0)
        if x.ndim != 4 or block < 1 or x.shape[2] % block or x.shape[3] % block:
            raise ShapeError(f"SpaceToDepth: x {x.shape}, blocksize {block}.")
        n, channels, height, width = x.shape
        y = x.reshape(n, channels, height // block, block, width // block, block)
        y = y.transpose(0, 3, 5, 1, 2, 4)
        return (y.reshape(n, channels * block**2, height // block, width // block),)
