from __future__ import annotations

from onnxq.operators.cos import Cos
from tests.operators.builder import copied, u8

OP = Cos()


def test_cosine_of_zero() -> None:
    assert copied(OP, u8([1, 7, 13]))[0].tolist() == [5, 9, 5]
