from __future__ import annotations

import numpy as np
import pytest

from onnxq.affine import dequantize
from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.errors import ShapeError
from onnxq.operator import Call, NodePlan
from onnxq.operators._number import as_integer, is_scale, number_kernel
from onnxq.qparams import per_tensor


@pytest.mark.parametrize("dtype", [UINT8, INT8])
@pytest.mark.parametrize("number", [1.0, -1.0, 0.1, -3e30, 0.0])
def test_one_integer_stands_for_the_number(number: float, dtype: QDType) -> None:
    integer, qparams = as_integer(number, dtype)
    assert dequantize(integer, qparams) == np.float32(number)


def test_infinity_has_no_integer() -> None:
    with pytest.raises(ShapeError, match="finite"):
        as_integer(float("inf"), UINT8)


@pytest.mark.parametrize(
    ("number", "good"), [(1.0, True), (0.0, False), (1e-40, False), (1e39, False), (-1.0, False)]
)
def test_scales_are_normal_numbers(number: float, good: bool) -> None:
    assert is_scale(number) == good


def test_products_and_sums() -> None:
    plan = NodePlan((per_tensor(0.5, 7, UINT8),), (per_tensor(0.5, 7, UINT8),))
    x = np.array([0, 7, 9], np.uint8)
    assert number_kernel(Call("Op", [x], plan), "QLinearMul", -2.0).tolist() == [21, 7, 3]
    assert number_kernel(Call("Op", [x], plan), "QLinearAdd", -1.5).tolist() == [0, 4, 6]
