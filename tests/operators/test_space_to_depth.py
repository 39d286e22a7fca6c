from __future__ import annotations

import numpy as np

from tests.operators.builder import copied, operator

OP = operator("SpaceToDepth")


def test_a_block_becomes_channels_row_by_row() -> None:
    x = np.arange(8, dtype=np.uint8).reshape(1, 1, 2, 4)
    (y,) = copied(OP, x, blocksize=2)
    assert y[0, :, 0].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
