from __future__ import annotations

import numpy as np

from tests.operators.builder import copied, operator

OP = operator("GatherND")


def test_an_index_of_fewer_axes_takes_slices() -> None:
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert copied(OP, x, np.array([[1], [-2]]))[0].tolist() == [[3, 4, 5], [0, 1, 2]]
