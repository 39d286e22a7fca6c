"""An operator that ONNX Runtime runs on codes: only what it computes, and examples of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.authoring import operand, qdtype_of
from onnxq.errors import ShapeError
from onnxq.operator import Array, AttributeValue, Case, IntegerOperator, register_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OP = "MatMulInteger16"


@register_integer
class MatMulInteger16(IntegerOperator):
    """Y = A B in int32, of int16 matrices; com.microsoft. Sums wrap modulo 2^32."""

    op_type = OP
    domains = ("com.microsoft",)

    def kernel(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """The product. Raises ShapeError where shapes or dtypes do not fit together."""
        a, b = operand(OP, inputs, 0, "A"), operand(OP, inputs, 1, "B")
        for x, name in ((a, "A"), (b, "B")):
            qdtype_of(OP, x, name, allowed=("int16",))
        try:
            return ((a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32),)
        except ValueError as error:
            raise ShapeError(f"{OP}: A {a.shape}, B {b.shape}: {error}") from error

    def cases(self) -> Iterable[Case]:
        """A plain product, batches, the ends of the type."""
        random = np.random.default_rng(0)
        a, b = (random.integers(-999, 999, s).astype(np.int16) for s in ((3, 5), (5, 4)))
        yield Case("plain", (a, b))
        yield Case("batches", (np.stack([a, -a]), b))
        yield Case("lowest codes", (np.full((2, 2), -(2**15), np.int16),) * 2)
