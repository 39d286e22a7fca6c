from __future__ import annotations

from tests.operators import builder
from tests.operators.builder import codes, copied

OP = builder.operator("Unsqueeze")


def test_axes_count_in_the_result() -> None:
    assert copied(OP, codes(2, 3), [0, 3])[0].shape == (1, 2, 3, 1)
