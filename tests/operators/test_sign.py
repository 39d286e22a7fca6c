from __future__ import annotations

from onnxq.operators.sign import Sign
from tests.operators.builder import copied, u8

OP = Sign()


def test_three_results() -> None:
    assert copied(OP, u8([0, 7, 8]))[0].tolist() == [5, 7, 9]
