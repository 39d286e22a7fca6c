"""Matrix product of integers and a float32 matrix, quantized on the way."""

from collections.abc import Iterable

import numpy as np

from onnxq.affine import quantize
from onnxq.operator import Array, Case, IntegerCall, register_integer
from onnxq.operator.examples import integers, normal, scales, zero
from onnxq.operator.integer_call import stored
from onnxq.operator.site import MICROSOFT
from onnxq.operators._columns import check_sum, late_columns, matmul_columns, to_float
from onnxq.operators._pairs import PairedSums, matmul_pairs
from onnxq.operators.dynamic_quantize_linear import dynamic_qparams
from onnxq.targets.accumulation import Accumulator, Pairs, SaturationMode


@register_integer
class DynamicQuantizeMatMul(PairedSums):
    """Y = float32(sum (q - q_zp) (B - b_zp[n])) * (q_scale * b_scale[n]) + bias[n].

    com.microsoft: inputs A (float32), B, b_scale, b_zero_point, bias; q is A by
    DynamicQuantizeLinear, over the whole tensor. Arithmetic: see MatMulIntegerToFloat.
    """

    op_type = "DynamicQuantizeMatMul"
    domains = (MICROSOFT,)
    weights = (1,)

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        a, b = call.operand(0, "A"), call.operand(1, "B")
        a_qparams = dynamic_qparams(call.op_type, a)
        right = late_columns(call, "b", b, call.operand(2, "b_scale"), call.optional(3))
        check_sum(call, a, b)
        quantized = quantize(np.asarray(a, np.float32), a_qparams)
        total = matmul_columns(call, quantized, a_qparams, right, b, accumulator)
        return (to_float(call, total, a_qparams.scale, right, call.optional(4)),)

    def pairs(self, call: IntegerCall, saturation_mode: SaturationMode) -> Pairs | None:
        return matmul_pairs(np.dtype(np.uint8), stored(call.operand(1, "B")), saturation_mode)

    def cases(self) -> Iterable[Case]:
        a, b = normal(3, 5), integers(5, 4, dtype="int8", seed=1)
        points = np.array([-128, 127, 0, 5], np.int8)
        column, bias = scales(0.01, 0.02, 0.04, 3), normal(4)
        given = (2, 3, 4)
        yield Case("plain", (a, b, scales(0.02)), (2,))
        yield Case("per column", (a, b, column, points), (2, 3))
        yield Case("bias", (a, b, column, points, bias), given)
        yield Case("bias alone", (a, b, column, None, bias), (2, 4))
        yield Case(
            "uint8, zero point 255", (a, integers(5, 4), scales(0.02), zero(255), bias), given
        )
        stack = integers(2, 5, 4, dtype="int8", seed=1)
        yield Case("batches, columns of all", (normal(2, 3, 5), stack, column), (2,))
        own = (np.stack([column, column * 2])[:, None], np.stack([points] * 2)[:, None])
        yield Case("batches, each with its columns", (normal(2, 3, 5), stack, *own), (2, 3))
        yield Case("row by matrix", (normal(5), b, column, points, bias), given)
        yield Case("zeros", (np.zeros((3, 5), np.float32), b, column, points, bias), given)
        yield Case("no row", (normal(0, 5), b, column, points, bias), given)
