from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Asin")


def test_integers_beyond_one_have_the_result_of_one() -> None:
    # -1.5, -1, 0, 1 and 1.5 by SHARED; 1.57 in steps of a half
    assert copied(OP, u8([4, 5, 7, 9, 10]))[0].tolist() == [4, 4, 7, 10, 10]
