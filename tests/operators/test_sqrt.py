from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Sqrt")


def test_root_of_four_is_two() -> None:
    assert copied(OP, u8([7, 15]))[0].tolist() == [7, 11]


def test_roots_of_negative_numbers_get_the_lowest_integer() -> None:
    assert copied(OP, u8([6]))[0].tolist() == [0]
