from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("Transpose")


def test_axes_are_reversed_without_perm() -> None:
    assert copied(OP, integers(2, 3, 4))[0].shape == (4, 3, 2)
