from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Softplus")


def test_it_does_not_overflow() -> None:
    assert copied(OP, u8([0, 7, 255]))[0].tolist() == [7, 8, 255]
