from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Softsign")


def test_it_bends_towards_one() -> None:
    assert copied(OP, u8([0, 5, 7, 9, 255]))[0].tolist() == [5, 6, 7, 8, 9]
