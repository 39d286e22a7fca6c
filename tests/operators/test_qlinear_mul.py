from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_mul import QLinearMul

P = (scales(0.5), zero(10))


def test_integers_stand_for_the_product() -> None:
    a, b = np.array([10, 12, 6], np.uint8), np.array([16], np.uint8)
    (c,) = QLinearMul().kernel(IntegerCall("QLinearMul", (a, *P, b, *P, *P)))
    assert c.tolist() == [10, 16, 0]  # 0, 1 and -2 times 3; the last saturates at -5


def test_operands_of_different_types_are_refused() -> None:
    inputs = (integers(3), *P, integers(3, dtype="int8"), *P, *P)
    with pytest.raises(ShapeError, match="QLinearMul: B has dtype int8; wanted uint8"):
        QLinearMul().kernel(IntegerCall("QLinearMul", inputs))
