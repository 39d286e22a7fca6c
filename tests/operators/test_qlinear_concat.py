from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_concat import QLinearConcat

Y = (scales(0.5), zero(10))


def test_parts_are_rescaled_to_the_qparams_of_the_result() -> None:
    a = np.array([10, 11], np.uint8)
    (y,) = QLinearConcat().kernel(
        IntegerCall("QLinearConcat", (*Y, a, *Y, a, scales(1.0), zero(0)), attributes={"axis": 0})
    )
    assert y.tolist() == [10, 11, 30, 32]


def test_parts_of_another_type_are_refused() -> None:
    inputs = (*Y, integers(2), *Y, integers(2, dtype="int8"), *Y)
    with pytest.raises(ShapeError, match="part 1 has dtype int8; wanted uint8"):
        QLinearConcat().kernel(IntegerCall("QLinearConcat", inputs, attributes={"axis": 0}))


def test_a_part_without_qparams_is_refused() -> None:
    with pytest.raises(ShapeError, match="4 inputs; wanted"):
        QLinearConcat().kernel(
            IntegerCall("QLinearConcat", (*Y, integers(2), scales(0.5)), attributes={"axis": 0})
        )


def test_an_axis_out_of_range_is_refused() -> None:
    with pytest.raises(ShapeError, match="axis 2 is out of bounds"):
        QLinearConcat().kernel(
            IntegerCall("QLinearConcat", (*Y, integers(2), *Y), attributes={"axis": 2})
        )
