"""Matrix product of integers, to integers."""

from collections.abc import Iterable

import numpy as np

from onnxq.affine import requantize
from onnxq.operator import Array, Case, IntegerCall, register_integer
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators._columns import check_signs, check_sum, columns, matmul_columns
from onnxq.operators._pairs import PairedSums
from onnxq.targets.accumulation import Accumulator


@register_integer
class QLinearMatMul(PairedSums):
    """y = requantize(sum (a - a_zp) (b - b_zp), a_scale * b_scale[n] / y_scale).

    ONNX QLinearMatMul-10 and 21: inputs a, a_scale, a_zp, b, b_scale, b_zp, y_scale, y_zp. Shapes
    as np.matmul. b has one scale, or one per column; a has one: ONNX Runtime refuses one per row.
    The scales may be float16, which ONNX Runtime casts to float32.
    """

    op_type = "QLinearMatMul"
    weights = (3,)

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        a, b = call.operand(0, "a"), call.operand(3, "b")
        a_qparams = call.qparams_of(
            "a", _scale(call, 1, "a_scale"), call.optional(2), call.qdtype(a, "a")
        )
        right = columns(call, "b", b, _scale(call, 4, "b_scale"), call.optional(5))
        check_signs(call, a, b)
        check_sum(call, a, b)
        zero_point = call.operand(7, "y_zero_point")
        qdtype = call.qdtype(zero_point, "y_zero_point")
        y_qparams = call.qparams_of("y", _scale(call, 6, "y_scale"), zero_point, qdtype)
        if y_qparams.dtype != a_qparams.dtype:
            raise call.shape_error(
                f"a is {a_qparams.dtype}, y {y_qparams.dtype}; they must be equal."
            )
        total = matmul_columns(call, a, a_qparams, right, b, accumulator)
        with np.errstate(over="ignore", under="ignore"):
            multiplier = np.asarray(a_qparams.scale * right.scale / y_qparams.scale)
        return (requantize(total, multiplier, y_qparams),)

    def cases(self) -> Iterable[Case]:
        a, b = integers(3, 5), integers(5, 4, dtype="int8", seed=1)
        last = (scales(20), zero(7))
        weight = (scales(0.02), zero(0, "int8"))
        given = (1, 2, 3, 4, 5, 6, 7)
        yield Case("plain", (a, *_tensor(), b, *weight, *last), given)
        column = (scales(0.01, 0.02, 0.04, 3), np.array([-128, 127, 0, 5], np.int8))
        yield Case("per column", (a, *_tensor(), b, *column, *last), given)
        row = (column[0][None], column[1][None])
        yield Case("per column, as a row", (a, *_tensor(), b, *row, *last), given)
        mixed = (column[0], zero(3, "int8"))
        yield Case("per column, one zero point", (a, *_tensor(), b, *mixed, *last), given)
        mixed = (scales(0.02), column[1])
        yield Case("one scale, zero points per column", (a, *_tensor(), b, *mixed, *last), given)
        top = (scales(0.5), zero(255))
        yield Case("uint8, zero points 255", (a, *top, integers(5, 4), *top, *top), given)
        signed = (scales(0.5), zero(-128, "int8"))
        left = integers(3, 5, dtype="int8")
        yield Case("int8, zero points -128", (left, *signed, b, *signed, *signed), given)
        stack = integers(2, 5, 4, dtype="int8", seed=1)
        own = (np.stack([column[0], column[0] * 2])[:, None], np.stack([column[1]] * 2)[:, None])
        fixed = tuple(slot for slot in given if slot != 3)
        yield Case("batches", (integers(2, 3, 5), *_tensor(), stack, *weight, *last), fixed)
        yield Case(
            "batches, each with its columns",
            (integers(2, 3, 5), *_tensor(), stack, *own, *last),
            fixed,
        )
        yield Case(
            "broadcast batches",
            (integers(3, 1, 3, 5), *_tensor(), integers(2, 5, 4, dtype="int8"), *weight, *last),
            fixed,
        )
        yield Case("row by matrix", (integers(5), *_tensor(), b, *column, *last), given)
        yield Case("row by column", (integers(5), *_tensor(), b[:, 0], *weight, *last), given)
        yield Case("no row", (integers(0, 5), *_tensor(), b, *column, *last), given)


def _scale(call: IntegerCall, slot: int, name: str) -> Array:
    """The scale, float16 widened to float32."""
    scale = call.operand(slot, name)
    return scale.astype(np.float32) if scale.dtype == np.float16 else scale


def _tensor() -> tuple[Array, Array]:
    return scales(0.25), zero(7)
