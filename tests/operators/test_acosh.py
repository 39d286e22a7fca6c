from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Acosh")


def test_integers_below_one_have_the_result_of_one() -> None:
    # 0, 0.5, 1, 2 and 124 by SHARED; 1.32 and 5.51 in steps of a half
    assert copied(OP, u8([7, 8, 9, 11, 255]))[0].tolist() == [7, 7, 7, 10, 18]
