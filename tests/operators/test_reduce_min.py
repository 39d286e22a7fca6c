from __future__ import annotations

import numpy as np

from tests.operators.builder import copied, operator

OP = operator("ReduceMin")


def test_the_smallest_integer_is_kept() -> None:
    x = np.array([[0, 1], [3, 2]], np.uint8)
    assert copied(OP, x, np.array([1]))[0].tolist() == [[0], [2]]
