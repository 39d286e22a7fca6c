from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Reciprocal")


def test_zero_gives_the_highest_integer() -> None:
    assert copied(OP, u8([7]))[0].tolist() == [255]


def test_small_numbers_have_large_reciprocals() -> None:
    assert copied(OP, u8([5, 6, 8, 9]))[0].tolist() == [5, 3, 11, 9]
