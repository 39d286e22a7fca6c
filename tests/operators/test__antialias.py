from __future__ import annotations

import numpy as np
import pytest

from onnxq.operator import NodeCall
from onnxq.operators._antialias import antialiased, filter_weights
from onnxq.operators._resample import Axis

HALVED = Axis(8, 4, np.float32(0.5))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
def test_weights_sum_to_1(mode: str, exclude_outside: int) -> None:
    _, weights = filter_weights(
        NodeCall("Op", (), attributes={"exclude_outside": exclude_outside}), HALVED, mode
    )
    assert np.abs(weights.sum(axis=1) - 1).max() < 1e-6  # a few roundings of float32


def test_the_filter_widens_as_the_image_shrinks() -> None:
    first, weights = filter_weights(NodeCall("Op", ()), HALVED, "linear")
    assert first.tolist() == [0, 1, 3, 5]
    assert weights[1, :4].tolist() == [0.125, 0.375, 0.375, 0.125]


def test_an_axis_whose_size_stays_is_copied() -> None:
    x = np.arange(4, dtype=np.float32)
    assert antialiased(NodeCall("Op", ()), x, {0: Axis(4, 4, np.float32(1.2))}, "linear") is x
