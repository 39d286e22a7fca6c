from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("Tile")


def test_copies_stand_side_by_side() -> None:
    assert copied(OP, integers(1, 2), [1, 2])[0].tolist() == [[0, 1, 0, 1]]
