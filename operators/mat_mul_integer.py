"""Matrix product of integers, to int32."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Case, IntegerCall, register_integer
from onnxq.operator.examples import integers, zero
from onnxq.operators._columns import check_sum, columns, matmul_columns
from onnxq.operators._pairs import PairedSums
from onnxq.targets.accumulation import Accumulator


@register_integer
class MatMulInteger(PairedSums):
    """Y = sum (A - a_zp) (B - b_zp[n]), int32, modulo 2^32; ONNX MatMulInteger-10.

    Inputs A, B, a_zero_point, b_zero_point; each of A and B is uint8 or int8. Shapes as np.matmul.
    B has one zero point or one per column; A has one: ONNX Runtime refuses one per row.
    """

    op_type = "MatMulInteger"
    weights = (1,)

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        a, b = call.operand(0, "A"), call.operand(1, "B")
        one = np.ones((), np.float32)
        a_qparams = call.qparams_of("a", one, call.optional(2), call.qdtype(a, "A"))
        right = columns(call, "B", b, None, call.optional(3))
        check_sum(call, a, b)
        return (matmul_columns(call, a, a_qparams, right, b, accumulator),)

    def cases(self) -> Iterable[Case]:
        extremes = {"uint8": 255, "int8": -128}
        for left, a_zp in extremes.items():
            for right, b_zp in extremes.items():
                yield Case(
                    f"{left} by {right}",
                    (
                        integers(3, 5, dtype=left),
                        integers(5, 4, dtype=right, seed=1),
                        zero(a_zp, left),
                        zero(b_zp, right),
                    ),
                    (2, 3),
                )
        a, b = integers(3, 5), integers(5, 4, dtype="int8", seed=1)
        points = np.array([-128, 127, 0, 5], np.int8)
        yield Case("no zero points", (a, b))
        yield Case("per column", (a, b, zero(7), points), (2, 3))
        yield Case("per column, as a row", (a, b, None, points[None]), (3,))
        stack = integers(2, 5, 4, dtype="int8", seed=1)
        yield Case("batches", (integers(2, 3, 5), stack, zero(7), zero(3, "int8")), (2, 3))
        own = np.stack([points, points[::-1]])[:, None]
        yield Case("batches, each with its columns", (integers(2, 3, 5), stack, None, own), (3,))
        yield Case("row by matrix", (integers(5), b, zero(7), points), (2, 3))
        yield Case("row by column", (integers(5), integers(5)))
        yield Case("long sums", (integers(2, 1500), integers(1500, 3, seed=1)))
        yield Case("no row", (integers(0, 5), b, zero(7), points), (2, 3))
