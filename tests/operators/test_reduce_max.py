from __future__ import annotations

import numpy as np

from tests.operators import builder
from tests.operators.builder import copied

OP = builder.operator("ReduceMax")


def test_axes_are_an_input_or_an_attribute() -> None:
    x = np.array([[0, 1]], np.uint8)
    assert copied(OP, x, np.array([1]))[0].tolist() == [[1]]
    assert copied(OP, x, axes=[1], keepdims=0)[0].tolist() == [1]


def test_no_axes_reduce_all_or_nothing() -> None:
    x = np.array([[0, 1]], np.uint8)
    assert copied(OP, x)[0].tolist() == [[1]]
    assert copied(OP, x, noop_with_empty_axes=1)[0].tolist() == [[0, 1]]
