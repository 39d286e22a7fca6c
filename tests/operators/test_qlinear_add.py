from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_add import QLinearAdd

P = (scales(0.5), zero(10))


def test_integers_stand_for_the_sum() -> None:
    a, b = np.array([10, 12], np.uint8), np.array([14], np.uint8)
    (c,) = QLinearAdd().kernel(IntegerCall("QLinearAdd", (a, *P, b, *P, *P)))
    assert c.tolist() == [14, 16]


def test_absent_zero_points_are_0() -> None:
    half = scales(0.5)
    (c,) = QLinearAdd().kernel(
        IntegerCall("QLinearAdd", (zero(3), half, None, zero(4), half, None, half))
    )
    assert c.item() == 7


def test_operands_of_different_types_are_refused() -> None:
    inputs = (integers(3), *P, integers(3, dtype="int8"), *P, *P)
    with pytest.raises(ShapeError, match="QLinearAdd: B has dtype int8; wanted uint8"):
        QLinearAdd().kernel(IntegerCall("QLinearAdd", inputs))


def test_a_result_of_another_type_is_refused() -> None:
    inputs = (integers(3), *P, integers(3), *P, scales(0.5), zero(1, "int8"))
    with pytest.raises(ShapeError, match="C_zero_point has dtype int8, but C is uint8"):
        QLinearAdd().kernel(IntegerCall("QLinearAdd", inputs))


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(ShapeError, match="shape mismatch"):
        QLinearAdd().kernel(IntegerCall("QLinearAdd", (integers(3), *P, integers(2), *P, *P)))
