from __future__ import annotations

import numpy as np

from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("GatherElements")


def test_indices_may_be_shorter_along_other_axes() -> None:
    assert copied(OP, integers(3, 4), np.array([[2, 0]]))[0].tolist() == [[8, 1]]
