from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, zero
from onnxq.operators.mat_mul_integer import MatMulInteger

if TYPE_CHECKING:
    from onnxq.operator import Array

A, B = integers(3, 5), integers(5, 4, dtype="int8", seed=1)


def test_sums_beyond_2_to_the_24_are_exact() -> None:
    a, b = np.full((1, 3001), 255, np.uint8), np.full((3001, 1), 255, np.uint8)
    (y,) = MatMulInteger().kernel(IntegerCall("MatMulInteger", (a, b)))
    assert y.item() == 3001 * 255 * 255


@pytest.mark.parametrize(
    ("a", "b", "a_zp", "b_zp", "message"),
    [
        (A, B, np.zeros(3, np.uint8), None, r"a_zero_point \(3,\)"),
        (A, B, None, np.zeros((1, 1, 4), np.int8), "B_zero_point has shape"),
        (integers(2, 3, 5), np.stack([B, B]), None, np.zeros(4, np.int8), "B_zero_point has shape"),
        (A, B, None, zero(3), "B is int8"),
        (A, B[:4], None, None, "5 columns meet 4 rows"),
        (integers(), B, None, None, "rank 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    a: Array, b: Array, a_zp: Array | None, b_zp: Array | None, message: str
) -> None:
    with pytest.raises(ShapeError, match=f"MatMulInteger: .*{message}"):
        MatMulInteger().kernel(IntegerCall("MatMulInteger", (a, b, a_zp, b_zp)))


def test_sums_of_nothing_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"MatMulInteger: .*K = 0"):
        MatMulInteger().kernel(IntegerCall("MatMulInteger", (A[:, :0], B[:0])))
