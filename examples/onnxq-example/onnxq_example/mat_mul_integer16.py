"""An operator that ONNX Runtime runs on integers: only what it computes, and examples of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer

if TYPE_CHECKING:
    from collections.abc import Iterable


@register_integer
class MatMulInteger16(IntegerOperator):
    """Y = A B in int32, of int16 matrices; com.microsoft. Sums wrap modulo 2^32."""

    op_type = "MatMulInteger16"
    domains = ("com.microsoft",)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """The product. Raises ShapeError where shapes or dtypes do not fit together."""
        a, b = call.operand(0, "A"), call.operand(1, "B")
        for x, name in ((a, "A"), (b, "B")):
            call.qdtype(x, name, allowed=("int16",))
        with call.shape_errors():
            return ((a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32),)

    def cases(self) -> Iterable[Case]:
        """A plain product, batches, the ends of the type."""
        random = np.random.default_rng(0)
        a, b = (random.integers(-999, 999, s).astype(np.int16) for s in ((3, 5), (5, 4)))
        yield Case("plain", (a, b))
        yield Case("batches", (np.stack([a, -a]), b))
        yield Case("lowest integers", (np.full((2, 2), -(2**15), np.int16),) * 2)
