from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Cos")


def test_cosine_of_zero() -> None:
    assert copied(OP, u8([1, 7, 13]))[0].tolist() == [5, 9, 5]
