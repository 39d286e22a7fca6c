from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Abs")


def test_both_signs_lose_theirs() -> None:
    assert copied(OP, u8([0, 6, 7, 8]))[0].tolist() == [14, 8, 7, 8]
