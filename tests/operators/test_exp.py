from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Exp")


def test_large_results_get_the_highest_integer() -> None:
    assert copied(OP, u8([0, 7, 9, 255]))[0].tolist() == [7, 9, 12, 255]
