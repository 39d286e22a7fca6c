from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_softmax import QLinearSoftmax

P = (scales(0.05), zero(128))
Q = (scales(1 / 256), zero(0))


def test_opset_12_sums_over_the_axis_and_all_behind_it() -> None:
    x = integers(2, 3, 4)
    (y,) = QLinearSoftmax().kernel(
        IntegerCall("QLinearSoftmax", (x, *P, *Q), attributes={"axis": 1, "opset": 12})
    )
    (flat,) = QLinearSoftmax().kernel(
        IntegerCall(
            "QLinearSoftmax", (x.reshape(2, 12), *P, *Q), attributes={"axis": -1, "opset": 13}
        )
    )
    assert np.array_equal(y.reshape(2, 12), flat)


def test_the_default_axis_is_that_of_the_opset() -> None:
    x = integers(2, 3, 4)
    for opset, axis in ((12, 1), (13, -1)):
        (default,) = QLinearSoftmax().kernel(
            IntegerCall("QLinearSoftmax", (x, *P, *Q), attributes={"opset": opset})
        )
        (given,) = QLinearSoftmax().kernel(
            IntegerCall("QLinearSoftmax", (x, *P, *Q), attributes={"opset": opset, "axis": axis})
        )
        assert np.array_equal(default, given)


def test_the_overflow_of_onnx_runtime_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match="ONNX Runtime overflows; choose a scale"):
        QLinearSoftmax().kernel(
            IntegerCall("QLinearSoftmax", (integers(3, 1), *P, *Q), attributes={"opset": 13})
        )


def test_no_elements_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no elements"):
        QLinearSoftmax().kernel(
            IntegerCall("QLinearSoftmax", (integers(0, 3), *P, *Q), attributes={"opset": 13})
        )


def test_an_axis_out_of_range_is_refused() -> None:
    with pytest.raises(ShapeError, match="axis 2"):
        QLinearSoftmax().kernel(
            IntegerCall(
                "QLinearSoftmax", (integers(2, 3), *P, *Q), attributes={"axis": 2, "opset": 13}
            )
        )
