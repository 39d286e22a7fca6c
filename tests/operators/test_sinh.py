from __future__ import annotations

import numpy as np

from onnxq.operator import Case, Curve
from tests.operators import builder
from tests.operators.builder import copied, operator, u8

OP = operator("Sinh")


def test_large_results_get_the_least_and_largest_integers() -> None:
    # by SHARED: 0, 1, and what is beyond 124
    assert copied(OP, u8([7, 9, 255]))[0].tolist() == [7, 9, 255]


def test_errors_of_large_numbers_are_followed_value_by_value() -> None:
    (response,) = OP.responses(builder.node_of(OP, Case("", (np.zeros((2, 3), np.float32),))))
    assert isinstance(response, Curve)
