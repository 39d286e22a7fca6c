from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Atan")


def test_large_numbers_of_both_signs_are_near_half_pi() -> None:
    # 0, 1 and 124 by SHARED; 0, 0.79 and 1.56 in steps of a half
    assert copied(OP, u8([7, 9, 255]))[0].tolist() == [7, 9, 10]
