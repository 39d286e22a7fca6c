from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("Flatten")


def test_axis_zero_gives_one_row() -> None:
    assert copied(OP, integers(2, 3, 4), axis=0)[0].shape == (1, 24)
