from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, ints32, scales, zero
from onnxq.operators.q_gemm import QGemm

A, B = integers(3, 5), integers(5, 4, dtype="int8", seed=1)
LEFT = (scales(0.5), zero(3))
RIGHT = (scales(0.5), zero(0, "int8"))


def test_sums_with_the_bias_wrap_modulo_2_to_the_32() -> None:
    a, b, bias = np.ones((1, 1), np.uint8), np.ones((1, 1), np.int8), ints32(2**31 - 1)
    one = (scales(1), zero(0), b, scales(1), zero(0, "int8"))
    (y,) = QGemm().kernel(IntegerCall("QGemm", (a, *one, bias)))
    assert y.item() == -(2.0**31)


@pytest.mark.parametrize("given", [(scales(1), None), (None, zero(0))])
def test_half_of_the_output_qparams_is_refused(given: tuple[np.ndarray | None, ...]) -> None:
    with pytest.raises(ShapeError, match=r"QGemm: .* give both or neither"):
        QGemm().kernel(IntegerCall("QGemm", (A, *LEFT, B, *RIGHT, None, *given)))


@pytest.mark.parametrize(
    ("a", "b", "bias", "message"),
    [
        (A[None], B, None, "wanted two matrices"),
        (A, B[:4], None, "5 columns meet 4 rows"),
        (A, B, ints32(1, 2, 3), "bias"),
        (A, B, np.ones(4, np.float32), "bias has dtype float32"),
    ],
)
def test_what_does_not_fit_is_refused(
    a: np.ndarray, b: np.ndarray, bias: np.ndarray | None, message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        QGemm().kernel(IntegerCall("QGemm", (a, *LEFT, b, *RIGHT, bias)))


def test_sums_of_nothing_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"QGemm: .*K = 0"):
        QGemm().kernel(IntegerCall("QGemm", (A[:, :0], *LEFT, B[:0], *RIGHT)))
    with pytest.raises(UnsupportedError, match=r"QGemm: .*K = 0"):
        QGemm().kernel(
            IntegerCall(
                "QGemm", (A[:0], *LEFT, B[:, :0], *RIGHT), attributes={"transA": 1, "transB": 1}
            )
        )
