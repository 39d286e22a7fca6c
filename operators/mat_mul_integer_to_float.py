"""Matrix product of integers, to float32."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Case, IntegerCall, register_integer
from onnxq.operator.examples import integers, normal, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._columns import check_signs, check_sum, late_columns, matmul_columns, to_float
from onnxq.operators._pairs import PairedSums
from onnxq.targets.accumulation import Accumulator


@register_integer
class MatMulIntegerToFloat(PairedSums):
    """Y = float32(sum (A - a_zp) (B - b_zp[n])) * (a_scale * b_scale[n]) + bias[n].

    com.microsoft: inputs A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias. float32, rounded
    after each step (no fused multiply-add). Shapes as np.matmul; B has one scale or one per column.
    """

    op_type = "MatMulIntegerToFloat"
    domains = (MICROSOFT,)
    weights = (1,)

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        a, b = call.operand(0, "A"), call.operand(1, "B")
        a_scale = call.operand(2, "a_scale")
        a_qparams = call.qparams_of("a", a_scale, call.optional(4), call.qdtype(a, "A"))
        right = late_columns(call, "b", b, call.operand(3, "b_scale"), call.optional(5))
        check_signs(call, a, b)
        check_sum(call, a, b)
        total = matmul_columns(call, a, a_qparams, right, b, accumulator)
        return (to_float(call, total, a_qparams.scale, right, call.optional(6)),)

    def cases(self) -> Iterable[Case]:
        a, b = integers(3, 5), integers(5, 4, dtype="int8", seed=1)
        points = np.array([-128, 127, 0, 5], np.int8)
        column, bias = scales(0.01, 0.02, 0.04, 3), normal(4)
        given = (2, 3, 4, 5, 6)
        yield Case("plain", (a, b, scales(0.3), scales(0.02)), given[:2])
        yield Case("per column", (a, b, scales(0.3), column, zero(7), points), given[:4])
        yield Case("bias", (a, b, scales(0.3), column, zero(255), points, bias), given)
        yield Case("bias alone", (a, b, scales(0.3), column, None, None, bias), (2, 3, 6))
        yield Case("as a row", (a, b, scales(0.3), column[None], zero(7), points[None]), given[:4])
        one = (scales(0.3), scales(0.02), zero(7), zero(255))
        yield Case("uint8", (a, integers(5, 4), *one), given[:4])
        low = zero(-128, "int8")
        left = integers(3, 5, dtype="int8")
        yield Case("int8", (left, b, scales(0.3), column, low, low, bias), given)
        stack, deep = integers(2, 5, 4, dtype="int8", seed=1), integers(2, 3, 5)
        batched = (deep, stack, scales(0.3))
        yield Case("batches, columns of all", (*batched, column, zero(7)), given[:3])
        yield Case("batches, bias", (*batched, scales(0.02), zero(7), None, bias), (2, 3, 4, 6))
        own = (np.stack([column, column * 2])[:, None], zero(7), np.stack([points] * 2)[:, None])
        yield Case("batches, each with its columns", (deep, stack, scales(0.3), *own), given[:4])
        yield Case(
            "row by matrix", (integers(5), b, scales(0.3), column, zero(7), points, bias), given
        )
        yield Case("no row", (integers(0, 5), b, scales(0.3), column, zero(7), points, bias), given)
