"""An operator of the float model, in a domain that is not ONNX's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.authoring import lower_function, random_reals, table_kernel
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

    Reals = npt.NDArray[np.float64]

ALPHA = 1.702  # the schema's default


@register
class QuickGelu(Operator):
    """Y = X / (1 + exp(-alpha X)); com.microsoft, element-wise, any shape. ONNX QuickGelu-1.

    ONNX Runtime has no integer kernel. A function of one code is a table of 256 codes, though, and
    a table is exact by construction: lowering and kernel write and read the same one.
    """

    op_type = "QuickGelu"
    domain = "com.microsoft"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Input 0 and output 0 have codes; `lower` says how it is written (Form.CODES)."""
        return Rule(Role.ELEMENTWISE, form=Form.CODES)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones."""
        yield Case("plain", (random_reals(2, 3, 4),))
        yield Case("steep", (100 * random_reals(2, 3, 4),), attributes={"alpha": 5.0})
        yield Case("empty batch", (random_reals(0, 3),))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        """The table, and the nodes that read it."""
        alpha = site.node.attributes.get_float("alpha", ALPHA)
        return lower_function(site, quick_gelu(alpha))

    def kernel(self, call: Call) -> tuple[Array, ...]:
        """Codes of Y. Raises ShapeError where dtypes or qparams do not fit."""
        return (table_kernel(call, quick_gelu(call.real("alpha", ALPHA))),)


def quick_gelu(alpha: float) -> Callable[[Reals], Reals]:
    """The function of float64 numbers."""

    def function(x: Reals) -> Reals:
        return np.asarray(x / (1 + np.exp(-alpha * x)))

    return function
