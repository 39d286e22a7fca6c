from __future__ import annotations

import numpy as np

from onnxq.operator import IntegerCall
from onnxq.operator.examples import scales, zero
from onnxq.operators.qlinear_leaky_relu import QLinearLeakyRelu

P = (scales(0.5), zero(100))


def test_the_slope_holds_below_the_zero_point() -> None:
    x = np.array([60, 100, 140], np.uint8)
    (y,) = QLinearLeakyRelu().kernel(
        IntegerCall("QLinearLeakyRelu", (x, *P, *P), attributes={"alpha": 0.25})
    )
    assert y.tolist() == [90, 100, 140]


def test_the_slope_is_a_hundredth_where_the_node_has_none() -> None:
    (y,) = QLinearLeakyRelu().kernel(
        IntegerCall("QLinearLeakyRelu", (np.array([0], np.uint8), *P, *P))
    )
    assert y.tolist() == [99]
