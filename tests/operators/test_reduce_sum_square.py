from __future__ import annotations

import numpy as np

from onnxq.operator import Case, Curve
from onnxq.operator.examples import ints
from tests.operators import builder
from tests.operators.builder import copied, operator, u8

OP = operator("ReduceSumSquare")


def test_squares_are_summed() -> None:
    assert copied(OP, u8([[9, 11]]), ints(1), keepdims=0)[0].tolist() == [17]  # 1 and 2 by SHARED


def test_errors_grow_as_those_of_a_square() -> None:
    case = Case("", (np.zeros((2, 3), np.float32), ints(1)), (1,))
    (response,) = OP.responses(builder.node_of(OP, case))
    assert isinstance(response, Curve)
    assert response.exponent == 2.0
