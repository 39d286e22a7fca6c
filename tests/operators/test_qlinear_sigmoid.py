from __future__ import annotations

import numpy as np

from onnxq.operator import IntegerCall
from onnxq.operator.examples import scales, zero
from onnxq.operators.qlinear_sigmoid import QLinearSigmoid


def test_the_result_has_the_type_of_x_where_its_zero_point_is_absent() -> None:
    x = np.array([-128, 0, 127], np.int8)
    (y,) = QLinearSigmoid().kernel(
        IntegerCall("QLinearSigmoid", (x, scales(0.5), None, scales(1 / 128), None))
    )
    assert y.dtype == np.int8
    assert y.tolist() == [0, 64, 127]


def test_a_half_is_in_the_middle() -> None:
    x = np.array(7, np.uint8)
    (y,) = QLinearSigmoid().kernel(
        IntegerCall("QLinearSigmoid", (x, scales(0.1), zero(7), scales(1 / 256), zero(0)))
    )
    assert y.item() == 128
