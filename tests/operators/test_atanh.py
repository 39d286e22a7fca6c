from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Atanh")


def test_integers_of_one_and_beyond_saturate() -> None:
    # -1.5, -1, 0, 0.5, 1 and 1.5 by SHARED; 0.55 in steps of a half
    assert copied(OP, u8([4, 5, 7, 8, 9, 10]))[0].tolist() == [0, 0, 7, 8, 255, 255]
