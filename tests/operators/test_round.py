from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Round")


def test_halves_go_to_even() -> None:
    assert copied(OP, u8([4, 5, 6, 7, 8, 10]))[0].tolist() == [3, 5, 7, 7, 7, 11]
