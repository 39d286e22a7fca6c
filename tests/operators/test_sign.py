from __future__ import annotations

from onnxq.operators.sign import Sign
from tests.operators.builder import copied, u8

OP = Sign()


def test_results_are_minus_one_zero_and_one() -> None:
    assert copied(OP, u8([0, 7, 8]))[0].tolist() == [5, 7, 9]
