from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import codes, copied

OP = builder.operator("Transpose")


def test_axes_are_reversed_without_perm() -> None:
    assert copied(OP, codes(2, 3, 4))[0].shape == (4, 3, 2)
