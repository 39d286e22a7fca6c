from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("Expand")


def test_a_one_in_the_shape_keeps_the_input() -> None:
    assert copied(OP, integers(3, 4), [1, 1])[0].shape == (3, 4)
