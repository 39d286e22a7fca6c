from __future__ import annotations

import numpy as np

from onnxq.operator import Case, Curve
from tests.operators import builder
from tests.operators.builder import copied, operator, u8

OP = operator("Tan")


def test_errors_are_followed_value_by_value() -> None:
    (response,) = OP.responses(builder.node_of(OP, Case("", (np.zeros((2, 3), np.float32),))))
    assert isinstance(response, Curve)


def test_beyond_a_pole_it_begins_anew() -> None:
    # 0, 1, 1.5 and 2 by SHARED; 0, 1.56, 14.1 and -2.19 in steps of a half
    assert copied(OP, u8([7, 9, 10, 11]))[0].tolist() == [7, 10, 35, 3]
