from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("Reshape")


def test_zero_keeps_a_size_and_minus_one_is_inferred() -> None:
    assert copied(OP, integers(2, 3, 4), [0, -1])[0].shape == (2, 12)
