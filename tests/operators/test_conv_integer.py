from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, zero
from onnxq.operators.conv_integer import ConvInteger

X, W = integers(1, 4, 5, 5), integers(6, 2, 3, 3, dtype="int8")


def test_padding_counts_as_the_zero_point() -> None:
    x = np.full((1, 1, 2, 2), 7, np.uint8)
    w = np.ones((1, 1, 3, 3), np.uint8)
    (y,) = ConvInteger().kernel(
        IntegerCall("ConvInteger", (x, w, zero(7)), attributes={"pads": [1, 1, 1, 1]})
    )
    assert not y.any()


def test_output_channels_may_have_their_own_zero_points() -> None:
    points = np.arange(6, dtype=np.int8)
    (y,) = ConvInteger().kernel(
        IntegerCall("ConvInteger", (X, W, None, points), attributes={"group": 2})
    )
    for channel, point in enumerate(points):
        (alone,) = ConvInteger().kernel(
            IntegerCall("ConvInteger", (X, W, None, np.asarray(point)), attributes={"group": 2})
        )
        assert np.array_equal(y[:, channel], alone[:, channel])


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((X, W), {}, "wanted 4 = 2 . group channels"),
        ((X, W[:, :, 0]), {"group": 2}, "wanted the same rank"),
        ((X, W), {"group": 2, "kernel_shape": [3, 2]}, "kernel_shape"),
        ((X[..., :2], W), {"group": 2}, "do not fit"),
        ((X, W, None, np.zeros(5, np.int8)), {"group": 2}, "w_zero_point has 5 numbers"),
    ],
)
def test_what_does_not_fit_is_refused(
    inputs: tuple[np.ndarray | None, ...], attributes: dict[str, int | list[int]], message: str
) -> None:
    with pytest.raises(ShapeError, match=f"ConvInteger: .*{message}"):
        ConvInteger().kernel(IntegerCall("ConvInteger", inputs, attributes=attributes))
