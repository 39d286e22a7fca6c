"""Pixels to channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """SpaceToDepth on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        block = call.integer("blocksize", 0)
        if x.ndim != 4 or block < 1 or x.shape[2] % block or x.shape[3] % block:
            raise ShapeError(f"SpaceToDepth: x {x.shape}, blocksize {block}.")
        n, channels, height, width = x.shape
        y = x.reshape(n, channels, height // block, block, width // block, block)
        y = y.transpose(0, 3, 5, 1, 2, 4)
        return (y.reshape(n, channels * block**2, height // block, width // block),)
