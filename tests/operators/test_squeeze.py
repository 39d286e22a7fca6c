from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("Squeeze")


def test_only_axes_of_size_one_go() -> None:
    assert copied(OP, integers(1, 3, 1))[0].shape == (3,)
