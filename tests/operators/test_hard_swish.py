from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("HardSwish")


def test_it_is_zero_below_minus_three_and_the_identity_above_three() -> None:
    assert copied(OP, u8([0, 1, 7, 13, 255]))[0].tolist() == [7, 7, 7, 13, 255]


def test_its_dip_is_kept() -> None:
    assert copied(OP, u8([4]))[0].tolist() == [6]
