from __future__ import annotations

import numpy as np

from tests.operators.builder import copied, operator

OP = operator("Min")


def test_operands_of_several_shapes_broadcast() -> None:
    x, y = np.array([[2], [5]], np.uint8), np.array([3], np.uint8)
    assert copied(OP, x, y)[0].ravel().tolist() == [2, 3]
