from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_average_pool import QLinearAveragePool

P = (scales(0.5), zero(10))
ATTRIBUTES: dict[str, Any] = {"kernel_shape": [2, 3], "pads": [1, 0, 1, 2], "strides": [1, 2]}


def test_channels_last_gives_the_same_integers_transposed() -> None:
    x = integers(2, 3, 5, 6)
    (first,) = QLinearAveragePool().kernel(
        IntegerCall("QLinearAveragePool", (x, *P, *P), attributes=ATTRIBUTES)
    )
    last_attributes = {**ATTRIBUTES, "channels_last": 1}
    inputs = (np.moveaxis(x, 1, -1), *P, *P)
    (last,) = QLinearAveragePool().kernel(
        IntegerCall("QLinearAveragePool", inputs, attributes=last_attributes)
    )
    assert np.array_equal(np.moveaxis(last, -1, 1), first)


@pytest.mark.parametrize("last", [0, 1])
def test_windows_without_spatial_axes_are_refused(last: int) -> None:
    with pytest.raises(ShapeError, match="AveragePool"):
        QLinearAveragePool().kernel(
            IntegerCall(
                "QLinearAveragePool",
                (integers(3, 4), *P, *P),
                attributes={**ATTRIBUTES, "channels_last": last},
            )
        )
