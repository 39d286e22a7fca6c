from __future__ import annotations

from onnxq.operator.examples import ints
from tests.operators.builder import copied, operator, u8

OP = operator("ReduceL1")


def test_magnitudes_are_summed() -> None:
    assert copied(OP, u8([[5, 9]]), ints(1), keepdims=0)[0].tolist() == [11]  # -1 and 1 by SHARED
