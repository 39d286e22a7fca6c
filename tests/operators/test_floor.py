from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Floor")


def test_halves_go_down() -> None:
    assert copied(OP, u8([4, 5, 6, 7, 8]))[0].tolist() == [3, 5, 5, 7, 7]
