from __future__ import annotations

from onnxq.operators.abs import Abs
from tests.operators.builder import copied, u8

OP = Abs()


def test_both_signs_lose_theirs() -> None:
    assert copied(OP, u8([0, 6, 7, 8]))[0].tolist() == [14, 8, 7, 8]
