from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import NodeCall
from onnxq.operator.examples import ints
from onnxq.operators._resample import Axis, coordinates, nearest, resized_axes


def test_sizes_are_floors_of_scaled_sizes() -> None:
    axes = resized_axes(NodeCall("Op", ()), (5, 4), np.array([1.7, 0.6], np.float32), None)
    assert [axis.out for axis in axes] == [8, 2]


def test_axes_that_are_not_named_stay() -> None:
    (first, last) = resized_axes(
        NodeCall("Op", (), attributes={"axes": [-1]}), (5, 4), None, ints(8)
    )
    assert (first.out, float(first.scale)) == (5, 1)
    assert (last.out, float(last.scale)) == (8, 2)


@pytest.mark.parametrize(("policy", "wanted"), [("not_larger", (4, 8)), ("not_smaller", (6, 12))])
def test_a_policy_gives_all_axes_one_scale(policy: str, wanted: tuple[int, int]) -> None:
    axes = resized_axes(
        NodeCall("Op", (), attributes={"keep_aspect_ratio_policy": policy}),
        (2, 4),
        None,
        ints(4, 12),
    )
    assert tuple(axis.out for axis in axes) == wanted


def test_nothing_cannot_become_something() -> None:
    with pytest.raises(ShapeError, match="size 0 cannot become 3"):
        resized_axes(NodeCall("Op", ()), (0,), None, ints(3))


def test_half_pixels_are_centres() -> None:
    found = coordinates(NodeCall("Op", ()), Axis(2, 4, np.float32(2)))
    assert found.tolist() == [-0.25, 0.25, 0.75, 1.25]


def test_a_middle_that_float32_misses_is_a_middle() -> None:
    axis = Axis(20, 6, np.float32(6) / np.float32(20))
    assert coordinates(NodeCall("Op", ()), axis)[4] != 14.5
    assert (
        nearest(NodeCall("Op", (), attributes={"nearest_mode": "round_prefer_ceil"}), axis)[4] == 15
    )
    assert (
        nearest(NodeCall("Op", (), attributes={"nearest_mode": "round_prefer_floor"}), axis)[4]
        == 14
    )
