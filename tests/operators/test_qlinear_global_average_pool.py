from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_global_average_pool import QLinearGlobalAveragePool

P = (scales(0.5), zero(10))


def test_channels_last_gives_the_same_integers_transposed() -> None:
    x = integers(2, 3, 5, 6)
    (first,) = QLinearGlobalAveragePool().kernel(
        IntegerCall("QLinearGlobalAveragePool", (x, *P, *P))
    )
    inputs = (np.moveaxis(x, 1, -1), *P, *P)
    (last,) = QLinearGlobalAveragePool().kernel(
        IntegerCall("QLinearGlobalAveragePool", inputs, attributes={"channels_last": 1})
    )
    assert last.shape == (2, 1, 1, 3)
    assert np.array_equal(np.moveaxis(last, -1, 1), first)


@pytest.mark.parametrize("last", [0, 1])
def test_nothing_to_average_is_refused(last: int) -> None:
    with pytest.raises(ShapeError, match="GlobalAveragePool"):
        QLinearGlobalAveragePool().kernel(
            IntegerCall(
                "QLinearGlobalAveragePool",
                (integers(3, 4), *P, *P),
                attributes={"channels_last": last},
            )
        )
