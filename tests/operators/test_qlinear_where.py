from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_where import QLinearWhere

Z = (scales(0.5), zero(10))


def test_each_operand_is_rescaled_to_the_qparams_of_the_result() -> None:
    mask = np.array([True, False])
    x = np.array([10, 11], np.uint8)
    (z,) = QLinearWhere().kernel(
        IntegerCall("QLinearWhere", (mask, x, *Z, x, scales(1.0), zero(0), *Z))
    )
    assert z.tolist() == [10, 32]


def test_a_condition_of_another_type_is_refused() -> None:
    inputs = (integers(2), integers(2), *Z, integers(2), *Z, *Z)
    with pytest.raises(ShapeError, match="the condition has dtype uint8; wanted bool"):
        QLinearWhere().kernel(IntegerCall("QLinearWhere", inputs))


def test_operands_of_different_types_are_refused() -> None:
    inputs = (np.ones(2, np.bool_), integers(2), *Z, integers(2, dtype="int8"), *Z, *Z)
    with pytest.raises(ShapeError, match="y has dtype int8; wanted uint8"):
        QLinearWhere().kernel(IntegerCall("QLinearWhere", inputs))
