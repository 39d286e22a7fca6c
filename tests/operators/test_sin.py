from __future__ import annotations

from onnxq.operators.sin import Sin
from tests.operators.builder import copied, u8

OP = Sin()


def test_sine_of_half_pi() -> None:
    assert copied(OP, u8([4, 7, 10]))[0].tolist() == [5, 7, 9]
