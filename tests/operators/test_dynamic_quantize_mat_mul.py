from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, normal, scales
from onnxq.operators.dynamic_quantize_linear import DynamicQuantizeLinear
from onnxq.operators.dynamic_quantize_mat_mul import DynamicQuantizeMatMul
from onnxq.operators.mat_mul_integer_to_float import MatMulIntegerToFloat

A, B = normal(3, 5), integers(5, 4, dtype="int8", seed=1)


def test_it_is_dynamic_quantize_linear_and_mat_mul_integer_to_float() -> None:
    column, bias = scales(0.1, 0.2, 0.3, 0.4), normal(4)
    q, scale, zero_point = DynamicQuantizeLinear().kernel(
        IntegerCall("DynamicQuantizeLinear", (A,))
    )
    parts = (q, B, scale, column, zero_point, None, bias)
    (wanted,) = MatMulIntegerToFloat().kernel(IntegerCall("MatMulIntegerToFloat", parts))
    (got,) = DynamicQuantizeMatMul().kernel(
        IntegerCall("DynamicQuantizeMatMul", (A, B, column, None, bias))
    )
    assert np.array_equal(got, wanted)


def test_an_infinite_a_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="DynamicQuantizeMatMul: values from 0 to inf"):
        DynamicQuantizeMatMul().kernel(
            IntegerCall("DynamicQuantizeMatMul", (A + np.float32(np.inf), B, scales(0.1)))
        )
