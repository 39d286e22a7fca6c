from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("DepthToSpace")


def test_modes_order_channels_differently() -> None:
    x = integers(1, 8, 1, 1)
    assert copied(OP, x, blocksize=2)[0][0, 0].tolist() == [[0, 2], [4, 6]]
    assert copied(OP, x, blocksize=2, mode="CRD")[0][0, 0].tolist() == [[0, 1], [2, 3]]
