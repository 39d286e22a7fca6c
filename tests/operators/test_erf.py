from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Erf")


def test_far_away_it_is_the_sign() -> None:
    assert copied(OP, u8([0, 6, 7, 8, 255]))[0].tolist() == [5, 6, 7, 8, 9]
