from __future__ import annotations

import numpy as np
import pytest

from onnxq.operator import NodeCall
from onnxq.operators._interpolate import antialiased, blend, cubic, filter_weights, linear_taps
from onnxq.operators._resample import Axis

AXIS = Axis(3, 6, np.float32(2))


def test_linear_weights_sum_to_1() -> None:
    (_, far), (_, near) = linear_taps(NodeCall("Op", ()), AXIS)
    assert np.array_equal(far + near, np.ones(6, np.float32))


def test_the_last_element_is_met_from_both_sides() -> None:
    (before, far), (behind, near) = linear_taps(NodeCall("Op", ()), AXIS)
    assert (before[-1], behind[-1], far[-1], near[-1]) == (2, 2, 0.5, 0.5)


def test_a_ramp_stays_a_ramp_inside() -> None:
    x = np.arange(3, dtype=np.float32).reshape(1, 3)
    wanted = [[0, 0.25, 0.75, 1.25, 1.75, 2]]
    assert blend(x, {1: linear_taps(NodeCall("Op", ()), AXIS)}).tolist() == wanted


def test_cubic_interpolation_of_a_constant_is_the_constant() -> None:
    x = np.ones((3, 3), np.float32)
    for attributes in ({}, {"exclude_outside": 1}):
        y = cubic(NodeCall("Op", (), attributes=attributes), x, {0: AXIS, 1: AXIS})
        assert np.abs(y - 1).max() < 1e-6  # a few roundings of float32


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
