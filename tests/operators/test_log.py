from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Log")


def test_zero_and_below_get_the_lowest_integer() -> None:
    assert copied(OP, u8([0, 7, 9, 255]))[0].tolist() == [0, 0, 7, 17]
