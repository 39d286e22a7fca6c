from __future__ import annotations

import numpy as np

from tests.operators.builder import copied, integers, operator

OP = operator("Identity")


def test_result_is_a_copy() -> None:
    x = integers(2, 3)
    (y,) = copied(OP, x)
    assert np.array_equal(x, y)
    assert not np.shares_memory(x, y)
