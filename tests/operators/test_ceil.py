from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Ceil")


def test_halves_go_up() -> None:
    assert copied(OP, u8([4, 5, 6, 7, 8]))[0].tolist() == [5, 5, 7, 7, 9]
