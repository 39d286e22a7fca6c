from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators._columns import columns, late_columns

B = integers(5, 4, dtype="int8")
STACK = integers(2, 5, 4, dtype="int8")
COLUMN = scales(1, 2, 3, 4)
POINTS = np.array([1, 2, 3, 4], np.int8)


def test_one_zero_point_is_subtracted_from_every_integer() -> None:
    found = columns(IntegerCall("Op", ()), "b", B, scales(0.5), zero(-128, "int8"))
    assert np.array_equal(found.values, B.astype(np.float32) + 128)
    assert found.scale.shape == ()


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_columns_have_their_own_scales_and_zero_points(shape: tuple[int, ...]) -> None:
    found = columns(IntegerCall("Op", ()), "b", B, COLUMN.reshape(shape), POINTS.reshape(shape))
    assert np.array_equal(found.values, B.astype(np.float32) - POINTS)
    assert found.scale.shape == (4,)


def test_one_scale_goes_with_zero_points_per_column_and_the_other_way_round() -> None:
    assert columns(IntegerCall("Op", ()), "b", B, scales(0.5), POINTS).scale.tolist() == [0.5] * 4
    assert np.array_equal(
        columns(IntegerCall("Op", ()), "b", B, COLUMN, zero(1, "int8")).values, B - np.float32(1)
    )


def test_batches_have_their_own_columns() -> None:
    own = np.stack([COLUMN, COLUMN * 2])[:, None]
    assert columns(IntegerCall("Op", ()), "b", STACK, own, None).scale.shape == (2, 1, 4)


@pytest.mark.parametrize("shape", [(4,), (1, 1, 4)])
def test_scales_of_all_batches_in_one_vector_come_last(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="one per column"):
        columns(IntegerCall("Op", ()), "b", STACK, COLUMN.reshape(shape), None)
    found = late_columns(IntegerCall("Op", ()), "b", STACK, COLUMN.reshape(shape), None)
    assert found.scale == 1
    assert found.late is not None
    assert found.late.tolist() == COLUMN.tolist()


def test_scales_and_zero_points_of_other_shapes_are_refused() -> None:
    own = np.ones((2, 1, 4), np.float32)
    with pytest.raises(ShapeError, match=r"Op: b_zero_point has shape \(4,\)"):
        columns(IntegerCall("Op", ()), "b", STACK, own, POINTS)
    with pytest.raises(ShapeError, match=r"Op: b_scale has shape \(3,\)"):
        columns(IntegerCall("Op", ()), "b", B, scales(1, 2, 3), None)
