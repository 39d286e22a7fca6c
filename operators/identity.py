"""The tensor itself."""

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
from onnxq.operator.examples import normal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_ir as ir


@register
class Identity(Operator):
    """Y = X; ONNX Identity-14."""

    op_type = "Identity"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        yield Case("plain", (normal(2, 3),))
        yield Case("rank 0", (normal(),))
        yield Case("empty batch", (normal(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """Identity on codes."""
        return site.on_codes()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = call.codes(0)
        call.shared()
        return (x.copy(),)
