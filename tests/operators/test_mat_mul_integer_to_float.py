from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, normal, scales
from onnxq.operators.mat_mul_integer_to_float import MatMulIntegerToFloat

A, B = integers(3, 5), integers(5, 4, dtype="int8", seed=1)
HALF = scales(0.5)


def test_a_bias_with_the_scales_of_many_matrices_in_one_vector_is_refused() -> None:
    # ONNX Runtime 1.31: (sum * a_scale + bias) * b_scale
    stack, column = np.stack([B, B]), scales(0.1, 0.2, 0.3, 0.4)
    inputs = (np.stack([A, A]), stack, HALF, column, None, None, normal(4))
    with pytest.raises(UnsupportedError, match="which ONNX Runtime multiplies by the scales"):
        MatMulIntegerToFloat().kernel(IntegerCall("MatMulIntegerToFloat", inputs))


def test_int8_by_uint8_is_refused_as_by_onnx_runtime() -> None:
    with pytest.raises(UnsupportedError, match="A is int8 and B uint8"):
        MatMulIntegerToFloat().kernel(
            IntegerCall("MatMulIntegerToFloat", (A.view(np.int8), B.view(np.uint8), HALF, HALF))
        )


def test_a_bias_of_another_size_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"MatMulIntegerToFloat: the bias .* wanted float32, \(4,"):
        MatMulIntegerToFloat().kernel(
            IntegerCall("MatMulIntegerToFloat", (A, B, HALF, HALF, None, None, normal(3)))
        )


def test_sums_of_nothing_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="K = 0"):
        MatMulIntegerToFloat().kernel(
            IntegerCall("MatMulIntegerToFloat", (A[:, :0], B[:0], HALF, HALF))
        )
