from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_mat_mul import QLinearMatMul

A, B = integers(3, 5), integers(5, 4, seed=1)
HALF, ZERO = scales(0.5), zero(0)


def test_float16_scales_count_as_float32() -> None:
    left, right, out = (np.array(x, np.float16) for x in (0.1, 0.3, 7))
    (half,) = QLinearMatMul().kernel(
        IntegerCall("QLinearMatMul", (A, left, ZERO, B, right, ZERO, out, ZERO))
    )
    wide = [x.astype(np.float32) for x in (left, right, out)]
    (full,) = QLinearMatMul().kernel(
        IntegerCall("QLinearMatMul", (A, wide[0], ZERO, B, wide[1], ZERO, wide[2], ZERO))
    )
    assert np.array_equal(half, full)


def test_a_scale_per_row_is_refused_as_by_onnx_runtime() -> None:
    inputs = (A, scales(1, 2, 3), np.zeros(3, np.uint8), B, HALF, ZERO, HALF, ZERO)
    with pytest.raises(ShapeError, match=r"QLinearMatMul: a_scale has shape \(3,\)"):
        QLinearMatMul().kernel(IntegerCall("QLinearMatMul", inputs))


def test_int8_by_uint8_is_refused_as_by_onnx_runtime() -> None:
    low = zero(0, "int8")
    inputs = (A.astype(np.int8), HALF, low, B, HALF, ZERO, HALF, low)
    with pytest.raises(UnsupportedError, match="A is int8 and B uint8"):
        QLinearMatMul().kernel(IntegerCall("QLinearMatMul", inputs))


def test_a_result_of_another_type_is_refused() -> None:
    inputs = (A, HALF, ZERO, B, HALF, ZERO, HALF, zero(0, "int8"))
    with pytest.raises(ShapeError, match="a is uint8, y int8"):
        QLinearMatMul().kernel(IntegerCall("QLinearMatMul", inputs))


def test_sums_of_nothing_are_refused() -> None:
    inputs = (A[:, :0], HALF, ZERO, B[:0], HALF, ZERO, HALF, ZERO)
    with pytest.raises(UnsupportedError, match="K = 0"):
        QLinearMatMul().kernel(IntegerCall("QLinearMatMul", inputs))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"QLinearMatMul: .*5 columns meet 4 rows"):
        QLinearMatMul().kernel(
            IntegerCall("QLinearMatMul", (A, HALF, ZERO, B[:4], HALF, ZERO, HALF, ZERO))
        )
