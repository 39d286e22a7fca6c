"""General matrix product of integers."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Case, IntegerCall, NodePlan, register_integer
from onnxq.operator.examples import integers, ints32, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._columns import check_signs, check_sum
from onnxq.operators._pairs import PairedSums
from onnxq.operators.gemm import quantized_gemm
from onnxq.qparams import QParams
from onnxq.targets.accumulation import Accumulator


@register_integer
class QGemm(PairedSums):
    """Gemm of integers: inputs A, a_scale, a_zp, B, b_scale, b_zp, C (int32), y_scale, y_zp.

    com.microsoft. Without y_scale and y_zp, y is float32. B has one scale, or one per column of B'.
    C is at a_scale * b_scale; alpha multiplies it too. Arithmetic: see Gemm.
    """

    op_type = "QGemm"
    domains = (MICROSOFT,)
    weights = (3,)

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        a, b = call.operand(0, "A"), call.operand(3, "B")
        a_qparams = call.qparams("a", 1, call.qdtype(a, "A"))
        trans_a, trans_b = call.integer("transA", 0), call.integer("transB", 0)
        b_qparams = call.qparams("b", 4, call.qdtype(b, "B"), axis=0 if trans_b else 1)
        check_signs(call, a, b)
        if a.ndim != 2 or b.ndim != 2:
            raise call.shape_error(f"A {a.shape} and B {b.shape}; wanted two matrices.")
        check_sum(call, a.T if trans_a else a, b.T if trans_b else b)
        columns = b.shape[0 if trans_b else 1]
        if b_qparams.scale.size not in (1, columns):
            raise call.shape_error(
                f"b_scale has {b_qparams.scale.size} numbers; wanted 1 or {columns}."
            )
        bias = call.optional(6)
        c_qparams = None if bias is None else call.bias_qparams(bias, a_qparams, b_qparams)
        plan = NodePlan((a_qparams, b_qparams, c_qparams), (_result(call, a_qparams),))
        with call.shape_errors():
            return quantized_gemm(call.planned((a, b, bias), plan), accumulator)

    def cases(self) -> Iterable[Case]:
        a, b = integers(3, 5), integers(5, 4, dtype="int8", seed=1)
        left, weight = (scales(0.25), zero(7)), (scales(0.02), zero(3, "int8"))
        column = (scales(0.01, 0.02, 0.04, 3), np.array([-128, 127, 0, 5], np.int8))
        y_qparams = (scales(2), zero(255))
        c = ints32(1000, -70, 3, 2**31 - 1)
        given = (1, 2, 3, 4, 5, 6, 7, 8)
        yield Case("plain", (a, *left, b, *weight, None, *y_qparams), (1, 2, 3, 4, 5, 7, 8))
        yield Case("per column, bias", (a, *left, b, *column, c, *y_qparams), given)
        yield Case("float32 result", (a, *left, b, *column, c), given[:6])
        yield Case("float32 result, alpha", (a, *left, b, *weight), given[:5], {"alpha": 0.3})
        turned = {"transA": 1, "transB": 1, "alpha": 0.7}
        both = (integers(5, 3), *left, integers(4, 5, dtype="int8", seed=1), *column, c, *y_qparams)
        yield Case("transA, transB, alpha", both, given, turned)
        for shape in ((), (1,), (1, 4), (3, 1), (3, 4)):
            bias = integers(*shape, dtype="int16").astype(np.int32)
            yield Case(f"bias of shape {shape}", (a, *left, b, *column, bias, *y_qparams), given)
        signed = (scales(0.5), zero(-128, "int8"))
        yield Case("int8", (integers(3, 5, dtype="int8"), *signed, b, *signed, c, *signed), given)
        top = (scales(0.5), zero(255))
        yield Case("uint8, zero points 255", (a, *top, integers(5, 4), *top, c, *top), given)
        yield Case("no row", (integers(0, 5), *left, b, *column, c, *y_qparams), given)


def _result(call: IntegerCall, a_qparams: QParams) -> QParams | None:
    """QParams of y; None: float32. Raises ShapeError where only half of them is given."""
    scale, zero_point = call.optional(7), call.optional(8)
    if scale is None and zero_point is None:
        return None
    if scale is None or zero_point is None:
        raise call.shape_error("y_scale and y_zero_point belong together; give both or neither.")
    y_qparams = call.qparams("y", 7, call.qdtype(zero_point, "y_zero_point"))
    if y_qparams.dtype != a_qparams.dtype:
        raise call.shape_error(f"A is {a_qparams.dtype}, y {y_qparams.dtype}; they must be equal.")
    return y_qparams
