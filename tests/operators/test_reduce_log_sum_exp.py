from __future__ import annotations

import numpy as np

from onnxq.operator.examples import ints
from tests.operators.builder import copied, operator, u8

OP = operator("ReduceLogSumExp")


def test_two_equal_summands_add_the_logarithm_of_two() -> None:
    assert copied(OP, u8([[9, 9]]), ints(1), keepdims=0)[0].tolist() == [10]  # 1 + .69 by SHARED


def test_large_summands_do_not_overflow() -> None:
    (y,) = copied(OP, np.full((1, 100), 255, np.uint8), ints(1))
    assert y.tolist() == [[255]]
