from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators._examples import ints
from onnxq.operators._sums import axes_of, count_over, sum_over


def test_axes_come_from_the_input_then_the_attribute_then_are_all() -> None:
    assert axes_of("ReduceSum", 3, ints(-1, 0), {"axes": [1]}) == [0, 2]
    assert axes_of("ReduceSum", 3, None, {"axes": [1]}) == [1]
    assert axes_of("ReduceSum", 3, None, {}) == [0, 1, 2]
    assert axes_of("ReduceSum", 3, ints(), {"noop_with_empty_axes": 1}) == []


def test_an_axis_twice_is_refused() -> None:
    with pytest.raises(ShapeError, match="axes"):
        axes_of("ReduceSum", 2, ints(1, -1), {})


def test_large_numbers_do_not_swallow_small_ones() -> None:
    x = np.array([2**24, 1, -(2**24)], np.float32)
    assert sum_over(x, [0], {"keepdims": 0}).item() == 1


def test_counts_are_products() -> None:
    assert count_over((2, 3, 4), [0, 2]) == 8
