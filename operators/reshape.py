"""The same elements in another shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
class Reshape(Operator):
    """Y = X with shape S; ONNX Reshape-14.

    A 0 in S keeps that size of X (unless allowzero is set), -1 is what is left.
    """

    op_type = "Reshape"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("flat", (normal(2, 3, 4), ints(-1)), (1,))
        yield Case("kept and inferred sizes", (normal(2, 3, 4), ints(0, -1)), (1,))
        yield Case("shape computed at run time", (normal(2, 6), ints(3, 4)))
        yield Case("allowzero", (normal(0, 3), ints(3, 0)), (1,), {"allowzero": 1})
        yield Case("empty batch", (normal(0, 3, 4), ints(0, 12)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Reshape on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        wanted = call.vector(1)
        with call.shape_errors():
            if not call.integer("allowzero", 0):
                wanted = [x.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
            return (x.reshape(wanted),)
