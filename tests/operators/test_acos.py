from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Acos")


def test_integers_beyond_one_have_the_result_of_one() -> None:
    # -1.5, -1, 0, 1 and 1.5 by SHARED; 3.14, 1.57 and 0 in steps of a half
    assert copied(OP, u8([4, 5, 7, 9, 10]))[0].tolist() == [13, 13, 10, 7, 7]
