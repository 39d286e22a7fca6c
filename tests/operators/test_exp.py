from __future__ import annotations

from onnxq.operators.exp import Exp
from tests.operators.builder import copied, u8

OP = Exp()


def test_large_results_get_the_highest_code() -> None:
    assert copied(OP, u8([0, 7, 9, 255]))[0].tolist() == [7, 9, 12, 255]
